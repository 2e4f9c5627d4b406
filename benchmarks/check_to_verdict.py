"""From the start of ``ddpdoctor check train.py`` to its verdict, over the scripts of tests/sick and tests/healthy.

    python benchmarks/check_to_verdict.py [--every 4] [--nproc 2]

Host and group are left out. Scripts that start their ranks themselves are left out, too: their launch lines differ.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from limits import tell

TESTS = Path(__file__).resolve().parent.parent / "tests"
STARTS_RANKS = ("mp.spawn(", "start_processes(", "Process(target=")


def scripts(every: int) -> list[Path]:
    """One in so many of those that torchrun starts on CPUs."""
    both = [*(TESTS / "sick").glob("dd*.py"), *(TESTS / "healthy").glob("*.py")]
    known = ((path, path.read_text()) for path in sorted(both) if not path.name.startswith(("test_", "_")))
    return [path for path, text in known if not any(call in text for call in (*STARTS_RANKS, '"nccl"'))][
        ::every
    ]


def seconds(script: Path, nproc: int) -> float:
    """Of the whole command."""
    words = ["--nproc-per-node", str(nproc), "--backend", "gloo", "--quiet", "--ignore", "host,group"]
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "ddpdoctor", "check", *words, str(script)]
        subprocess.run(command, cwd=folder, capture_output=True, check=False)
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="Time `ddpdoctor check` over the scripts of the tests.")
    parser.add_argument("--every", type=int, default=4, help="take one script in so many")
    parser.add_argument("--nproc", type=int, default=2)
    options = parser.parse_args()
    taken = {script.stem: seconds(script, options.nproc) for script in scripts(options.every)}
    for name, elapsed in sorted(taken.items(), key=lambda one: -one[1])[:5]:
        print(f"{elapsed:6.1f} s  {name}")
    of = f"{len(taken)} scripts"
    tell("verdict_typical", statistics.median(taken.values()), of=of)
    tell("verdict_longest", max(taken.values()), of=of)


if __name__ == "__main__":
    main()
