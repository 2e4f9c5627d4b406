"""How long Ctrl-C takes to end a check, and how long until no process of it is left.

    python benchmarks/ctrl_c.py [--rounds 10] [--nproc 4]

Sends SIGINT at moments spread over a whole check, from its first import to the trainer under torchrun. The
limit is two seconds for everything to be gone.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time

from limits import tell

from ddpdoctor.host import System

WHOLE_CHECK_SECONDS = 8.0
"""About as long as an undisturbed check takes with four ranks on two cores."""
MARK = "DDPDOCTOR_BENCHMARK"


def left(mark: str) -> list[int]:
    """The live processes that inherited the mark."""
    return [process.pid for process in System().processes() if process.environ.get(MARK) == mark]


def interrupt(after: float, nproc: int, number: int) -> tuple[float, float]:
    """Seconds from SIGINT to the end of the command, and to the end of its last process."""
    mark = f"{os.getpid()}-{number}"
    command = [sys.executable, "-m", "ddpdoctor", "check", "--nproc", str(nproc), "--quiet"]
    environ = {**os.environ, MARK: mark}
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        time.sleep(after)
        process.send_signal(signal.SIGINT)
        start = time.perf_counter()
        process.wait()
        ended = time.perf_counter() - start
    while left(mark):
        time.sleep(0.01)
    return ended, time.perf_counter() - start


def main() -> None:
    """Interrupt at every moment, print each and the verdict."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--nproc", type=int, default=4)
    options = parser.parse_args()
    measured = []
    for number in range(options.rounds):
        after = WHOLE_CHECK_SECONDS * (number + 0.5) / options.rounds
        measured.append(interrupt(after, options.nproc, number))
        print(f"SIGINT after {after:4.1f} s: the command ended in {measured[-1][0]:.2f} s, ", end="")
        print(f"its last process in {measured[-1][1]:.2f} s")
    gone = [seconds for _, seconds in measured]
    tell("ctrl_c", max(gone), spread=f"median {statistics.median(gone):.2f}")


if __name__ == "__main__":
    main()
