"""What each benchmark measures against, as docs/architecture.md lists it, and how its result is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

ROWS = "DDPDOCTOR_BENCHMARK_ROWS"
"""The variable by which `all.py` names the file that takes a line for each result."""


os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# An installation has the modules compiled; compiled anew in each process they take half of the time that imports take.


class Limit(NamedTuple):
    """A number that a result is held against."""

    what: str
    number: float
    unit: str
    at_least: bool = False
    """Whether a result below it is the bad one."""

    def misses(self, measured: float) -> bool:
        """Whether a result is on the wrong side."""
        return measured < self.number if self.at_least else measured > self.number


LIMITS = {
    "help": Limit("ddpdoctor --help", 0.15, "s"),
    "group": Limit("host and group of 4 ranks, against a bare torchrun", 0.5, "x"),
    "check": Limit("the whole check with 4 ranks, against a bare torchrun", 1.0, "x"),
    "script": Limit("check train.py less 1 s, against the same steps plain", 1.15, "x"),
    "verdict_typical": Limit("check of a script of the corpora to its verdict, median", 15.0, "s"),
    "verdict_longest": Limit("the same, the longest", 60.0, "s"),
    "slow_steps": Limit("check of a script whose steps take a second, to its end", 60.0, "s"),
    "ctrl_c": Limit("Ctrl-C to the end of the last process", 2.0, "s"),
    "files": Limit("a job whose files are undone, more than one whose files are kept", 0.1, "s"),
    "files_large": Limit("the same, saving over checkpoints of 2 GiB", 1.0, "s"),
    "source": Limit("check --no-run", 1.0, "s"),
    "source_large": Limit("check --no-run", 10.0, "s"),
    "watch": Limit("watch, of the time of a step of 10 ms", 1.0, "%"),
    "top": Limit("top, of a CPU", 2.0, "%"),
    "soak_rank": Limit("memory of a rank in a long watch, more than plain", 30.0, "MiB"),
    "soak_growth": Limit("its growth after 1,000 steps", 5.0, "MiB"),
    "soak_record": Limit("the record of a rank", 64.0, "MiB"),
    "step_median": Limit("the recorder in most steps", 100.0, "us"),
    "step_mean": Limit("the recorder in a step on average", 100.0, "us"),
    "step_rare": Limit("the recorder in 99 steps of 100, at most", 1000.0, "us"),
    "lines": Limit("lines recorded, of a detailed step with 100 modules", 15.0, "%"),
    "verdict": Limit("the last progress of a job that hangs to the verdict", 10.0, "s"),
    "dumps": Limit("flight recorder dumps, against PyTorch's analyzer", 20.0, "x", at_least=True),
    "stacks": Limit("stacks of 10,000 ranks, merged and written", 0.3, "s"),
    "all_stacks": Limit("stacks of 131,072 ranks, merged and written", 5.0, "s"),
    "ranks_cpu": Limit("10,000 ranks read, judged and reported", 30.0, "s"),
    "ranks_memory": Limit("memory of that", 2048.0, "MiB"),
    "halt": Limit("a rank halted by one look of hang", 20.0, "ms"),
    "explain": Limit("explain on NCCL's log of 1,024 ranks", 300.0, "MB/s", at_least=True),
    "trainer": Limit("the bundled trainer, against a loop by hand", 3.0, "%"),
}


def tell(name: str, measured: float, *, of: str = "", spread: str = "") -> bool:
    """Print a result beside its limit, and hand it to `all.py` where that asks; whether it is above.

    Args:
        name: of the limit.
        measured: in the limit's unit.
        of: what it was measured on, where that is one of several.
        spread: the range or the error of the rounds.
    """
    limit = LIMITS[name]
    row = {
        "name": name,
        "what": limit.what + (f", {of}" if of else ""),
        "measured": measured,
        "spread": spread,
    }
    print(text(row))
    if ROWS in os.environ:
        with Path(os.environ[ROWS]).open("a", encoding="utf-8") as file:
            print(json.dumps(row), file=file)
    return limit.misses(measured)


def text(row: dict[str, object]) -> str:
    """A result as a line of the table."""
    limit, measured = LIMITS[str(row["name"])], float(str(row["measured"]))
    bound = f"{'>=' if limit.at_least else '<='} {limit.number:g} {limit.unit}"
    mark = ("BELOW" if limit.at_least else "ABOVE") if limit.misses(measured) else ""
    return (
        f"{row['what']:<62} {measured:8.3g} {limit.unit:<5}{row['spread']!s:<16} {bound:<13} {mark}".rstrip()
    )
