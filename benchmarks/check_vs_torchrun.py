"""``ddpdoctor check`` against the least that torchrun does: start ranks, all-reduce one tensor, end.

The commands run in alternation, so that a machine that is busy for a while is busy for all of them. Each is
timed as a whole process. Run as ``python benchmarks/check_vs_torchrun.py --rounds 7 --nproc 4``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ALL_REDUCE = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
dist.destroy_process_group()
"""
LIMITS = {"host and group": (0.75, "aim 0.5"), "everything": (2.0, "the trainer under torchrun included")}
BASE = "torchrun"


def commands(nproc: int, script: Path) -> dict[str, list[str]]:
    """What is compared: the base, and our own by the names of LIMITS."""
    python = sys.executable
    ranks = ["--nproc-per-node", str(nproc)]
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", *ranks, str(script)]
    check = [python, "-m", "ddpdoctor", "check", *ranks, "--backend", "gloo", "--quiet"]
    return {BASE: torchrun, "host and group": [*check, "--select", "host,group"], "everything": check}


def seconds(command: list[str], *, status_matters: bool) -> float:
    """One run of a command as a whole process.

    The base may abort after its script's end, which correct gloo programs do now and then.
    """
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - begin
    if status_matters and done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description="Time `ddpdoctor check` against a bare torchrun.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--nproc", type=int, default=4)
    options = parser.parse_args()
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "all_reduce.py"
        script.write_text(ALL_REDUCE)
        compared = commands(options.nproc, script)
        for number in range(options.rounds + 1):  # the first fills caches and is not counted
            for name, command in compared.items():
                elapsed = seconds(command, status_matters=name != BASE)
                if number:
                    taken.setdefault(name, []).append(elapsed)
    base = statistics.median(taken[BASE])
    print(f"{options.nproc} ranks, gloo, {options.rounds} rounds in alternation; medians of whole processes")
    print(f"{BASE:<16}{base:6.2f} s")
    for name, (limit, remark) in LIMITS.items():
        median = statistics.median(taken[name])
        print(f"{name:<16}{median:6.2f} s   {median / base:.2f} x   limit {limit} x, {remark}")


if __name__ == "__main__":
    main()
