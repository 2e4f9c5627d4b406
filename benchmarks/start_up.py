"""How long ``ddpdoctor --help`` takes as a whole process, and whether it imports torch."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from limits import tell

ROUNDS = 20
COMMAND = (sys.executable, "-m", "ddpdoctor", "--help")


def seconds() -> float:
    """One start, from before the process to after it."""
    begin = time.perf_counter()
    subprocess.run(COMMAND, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


def imports_torch() -> bool:
    """Whether the command line imports torch on its way to the help."""
    command = [COMMAND[0], "-X", "importtime", *COMMAND[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return any(line.rpartition("|")[2].strip() == "torch" for line in done.stderr.splitlines())


def main() -> None:
    seconds()  # writes the bytecode
    taken = [seconds() for _ in range(ROUNDS)]
    median = statistics.median(taken)
    tell("help", median, spread=f"{min(taken):.3f}-{max(taken):.3f}")
    print(f"torch {'was' if imports_torch() else 'was not'} imported")


if __name__ == "__main__":
    main()
