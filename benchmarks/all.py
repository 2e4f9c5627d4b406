"""Runs every benchmark and prints one table of what was measured, its limit, and which limits are missed.

    python benchmarks/all.py [NAME ...] [--busy] [--seconds 1800]

A NAME is that of a file beside this one. ``--busy`` keeps every CPU busy meanwhile: ratios within one run should hold
there, too, and seconds should not. A benchmark that fails, or takes too long, is named and the others run. Each makes
fewer rounds than by itself, so that the whole table can be had; the spread beside a result says how sure it is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from limits import LIMITS, ROWS, text

HERE = Path(__file__).parent
HANGS = [
    str(HERE.parent / "tests" / "sick" / "hangs" / f"{name}.py")
    for name in (
        "dd204_head_left_out",
        "dd303_metric_on_rank_0",
        "dd307_queue_never_filled",
        "dd309_other_order",
    )
]
"""A hang in a backward, in a collective, in one rank's own work, and of ranks that wait for each other."""
COMMANDS: dict[str, list[list[str]]] = {
    "start_up": [[]],
    "check_vs_torchrun": [["--rounds", "3"]],
    "check_to_verdict": [["--every", "12"]],
    "slow_steps": [[]],
    "ctrl_c": [["--rounds", "5"]],
    "files_cost": [["--rounds", "5"]],
    "watch_cost": [["--rounds", "4", "--steps", "1000"]],
    "top_cost": [[]],
    "soak": [["--steps", "20000"]],
    "source_cost": [[]],
    "step_cost": [[]],
    "line_cost": [[]],
    "hang_to_verdict": [HANGS],
    "flight_recorder": [["--ranks", ranks] for ranks in ("64", "256", "1024")],
    "merge_stacks": [["--ranks", ranks] for ranks in ("10000", "131072")],
    "many_ranks": [["--ranks", "10000", "--cause", "rank"]],
    "hang_attach": [["--nproc", ranks, "--rounds", "3"] for ranks in ("2", "64")],
    "explain_speed": [[]],
    "trainer_overhead": [["--nproc", ranks, "--turns", "150"] for ranks in ("1", "2")],
}
"""The options of each run of a benchmark."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--busy", action="store_true", help="beside a busy loop on every CPU")
    parser.add_argument("--seconds", type=float, default=1800.0, help="for each run")
    options = parser.parse_args()
    loops = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(_loops(options.busy))
    ]
    failed, began = [], time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder, "rows")
            rows.touch()
            for name in options.names or COMMANDS:
                for arguments in COMMANDS[Path(name).stem]:
                    command = [sys.executable, str((HERE / name).with_suffix(".py")), *arguments]
                    if not _runs(command, rows, options.seconds):
                        failed.append(" ".join([name, *arguments]))
            results = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    print("\n" + "\n".join(map(text, results)))
    missed = sum(LIMITS[row["name"]].misses(row["measured"]) for row in results)
    print(
        f"{len(results)} results in {(time.monotonic() - began) / 60:.1f} min, {missed} of them miss their limit"
        + "".join(f"; failed: {it}" for it in failed)
    )
    sys.exit(bool(missed or failed))


def _loops(busy: bool) -> int:
    return len(os.sched_getaffinity(0)) if busy else 0


def _runs(command: list[str], rows: Path, seconds: float) -> bool:
    """Whether a benchmark told a result; its exit status may say that a limit is missed."""
    print(f"\n{Path(command[1]).stem} {' '.join(command[2:])}", flush=True)
    before, began = rows.stat().st_size, time.monotonic()
    try:
        subprocess.run(command, env={**os.environ, ROWS: str(rows)}, timeout=seconds, check=False)
        print(f"took {time.monotonic() - began:.0f} s")
    except subprocess.TimeoutExpired:
        print(f"took longer than {seconds:.0f} s")
    return rows.stat().st_size > before


if __name__ == "__main__":
    main()
