"""The call under a condition on the rank by which some ranks alone come to a line."""

import textwrap
from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.trace.rank_guards import guarded_call

HELPERS = """
def reduced(value):
    dist.all_reduce(value)  # collective
    return value

class Meter:
    def compute(self):
        return reduced(self.sum)

"""


@pytest.mark.parametrize(
    ("calls", "function"),
    [
        ("if dist.get_rank() == 0:\n    print(meter.compute())  # leads", "<module>"),
        ("def end():\n    if rank != 0:\n        return\n    meter.compute()  # leads\nend()", "end"),
        (
            "def end(is_main):\n    for _ in range(2):\n        if is_main:\n            reduced(1)  # leads",
            "end",
        ),
        ("def show(rank):\n    meter.compute()\nif rank == 0:\n    show(rank)  # leads", "<module>"),
    ],
)
def test_the_call_that_some_ranks_make(calls: str, function: str, tmp_path: Path) -> None:
    script = _script(HELPERS + calls, tmp_path)
    assert guarded_call(_at(script, "# collective")) == Where(
        str(script), _at(script, "# leads").line, function
    )


@pytest.mark.parametrize(
    "calls",
    [
        "meter.compute()",
        "if rank == 0:\n    reduced(1)\nif rank == 0:\n    reduced(2)",
        "if epoch == 0:\n    meter.compute()",
        "def both():\n    reduced(both())",
    ],
)
def test_no_call_is_named_where_it_is_not_the_only_one(calls: str, tmp_path: Path) -> None:
    assert guarded_call(_at(_script(HELPERS + calls, tmp_path), "# collective")) is None


def test_a_line_under_a_condition_itself_is_the_one_to_change(tmp_path: Path) -> None:
    code = "def end():\n    if rank == 0:\n        dist.barrier()  # collective\nif rank == 0:\n    end()"
    assert guarded_call(_at(_script(code, tmp_path), "# collective")) is None


def test_no_line_is_no_call(tmp_path: Path) -> None:
    assert guarded_call(None) is None
    assert guarded_call(Where(str(tmp_path / "absent.py"), 3)) is None


def _script(code: str, folder: Path) -> Path:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(code))
    return script


def _at(script: Path, comment: str) -> Where:
    lines = script.read_text().splitlines()
    return Where(str(script), next(n for n, line in enumerate(lines, 1) if comment in line), "f")
