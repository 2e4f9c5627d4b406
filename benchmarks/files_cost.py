"""What it costs that a check leaves the user's files as they were.

    python benchmarks/files_cost.py [--rounds 10] [--gigabytes 2]

Runs a program that does nothing, with its files undone and without, in alternation; then one that saves over a
checkpoint of that size, as `torch.save` and `os.replace` do, which must not be copied; then one that adds to a file of
64 MiB, which is copied where the file system has no reflinks (shown, without a limit).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from limits import tell

from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.run import JobRun
from ddpdoctor.launch import Launch

SAVES = """
import os
open("best.pt", "wb").write(b"x")
open("last.tmp", "wb").write(b"x")
os.replace("last.tmp", "last.pt")
"""


def seconds(program: str, *, private: bool) -> float:
    """From the start of a program to the end of all that is done for it."""
    with tempfile.TemporaryDirectory() as place:
        job = Job(JobKind.LINE, (sys.executable, "-c", program), private=private)
        folder = Path(place, "run")
        folder.mkdir()
        began = time.perf_counter()
        run = JobRun(job, Launch(), folder)
        run.finish(time.monotonic() + 600)
        run.stop()
        return time.perf_counter() - began


def more(program: str, rounds: int) -> list[float]:
    """By how much longer each round takes with its files undone."""
    return [seconds(program, private=True) - seconds("", private=False) for _ in range(rounds)]


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    options = parser.parse_args()
    plain = more("", options.rounds)
    tell("files", statistics.median(plain), spread=f"{min(plain):.2f} to {max(plain):.2f}")
    with tempfile.TemporaryDirectory() as place:
        for name in ("best.pt", "last.pt"):
            with Path(place, name).open("wb") as file:
                file.truncate(int(options.gigabytes * 2**30))
        saved = more(f"import os; os.chdir({place!r}){SAVES}", options.rounds)
        tell("files_large", statistics.median(saved), spread=f"{min(saved):.2f} to {max(saved):.2f}")
        Path(place, "log.csv").write_bytes(os.urandom(1 << 20) * 64)
        added = more(f"import os; os.chdir({place!r}); open('log.csv', 'a').write('x')", options.rounds)
        print(f"added to 64 MiB: {statistics.median(added):.2f} s ({min(added):.2f} to {max(added):.2f})")


if __name__ == "__main__":
    main()
