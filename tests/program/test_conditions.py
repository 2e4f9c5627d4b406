"""What has to be so for a line to be reached, and which ranks that lets through."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.program import Origin, Program
from ddpdoctor.trace.lines import guarded_call, is_for_some_ranks
from ddpdoctor.trace.recording import Recording

HEAD = "import os, sys\nimport torch.distributed as dist\nrank = dist.get_rank()\n"
HELPERS = """
def reduced(value):
    dist.all_reduce(value)  # collective
    return value

class Meter:
    def compute(self):
        return reduced(self.sum)

meter = Meter()
"""


def _guarded_call(read: Program, at: Where | None) -> Where | None:
    """By the text alone: no lines were recorded."""
    return guarded_call(at, {0: Recording(script=read.script)})


def _program(code: str, folder: Path) -> tuple[Program, Where]:
    script = folder / "train.py"
    script.write_text(HEAD + textwrap.dedent(code))
    return Program(str(script)), _at(script, "# collective")


def _at(script: Path, comment: str) -> Where:
    lines = script.read_text().splitlines()
    return Where(str(script), next(n for n, line in enumerate(lines, 1) if comment in line), "f")


@pytest.mark.parametrize(
    ("calls", "function"),
    [
        ("if dist.get_rank() == 0:\n    print(meter.compute())  # leads", "<module>"),
        ("def end():\n    if rank != 0:\n        return\n    meter.compute()  # leads\nend()", "end"),
        (
            "def end(writes):\n    for _ in range(2):\n        if writes:\n            reduced(1)  # leads\n"
            "end(rank == 0)",
            "end",
        ),
        ("def show(rank):\n    meter.compute()\nif rank == 0:\n    show(rank)  # leads", "<module>"),
        ("chief = not rank\nif chief and meter:\n    meter.compute()  # leads", "<module>"),
        ("if rank:\n    sys.exit()\nmeter.compute()  # leads", "<module>"),
    ],
)
def test_the_call_that_some_ranks_make(calls: str, function: str, tmp_path: Path) -> None:
    read, at = _program(HELPERS + calls, tmp_path)
    leads = _at(Path(read.script), "# leads")
    assert _guarded_call(read, at) == Where(read.script, leads.line, function)
    assert is_for_some_ranks(at, {0: Recording(script=read.script)})


@pytest.mark.parametrize(
    "calls",
    [
        "meter.compute()",
        "if rank == 0:\n    reduced(1)\nif rank == 0:\n    reduced(2)",
        "if epoch == 0:\n    meter.compute()",
        "lora_rank = 8\nif lora_rank > 4:\n    meter.compute()",
        "use_master_weights = True\nif use_master_weights:\n    meter.compute()",
        "is_main = __name__ == '__main__'\nif is_main:\n    meter.compute()",
        "def both():\n    reduced(both())",
        "if rank == 0:\n    print()\nmeter.compute()",
    ],
)
def test_no_call_is_named_where_it_is_not_the_only_one(calls: str, tmp_path: Path) -> None:
    read, at = _program(HELPERS + calls, tmp_path)
    assert _guarded_call(read, at) is None


def test_a_line_under_a_condition_itself_is_the_one_to_change(tmp_path: Path) -> None:
    code = "def end():\n    if rank == 0:\n        dist.barrier()  # collective\nif rank == 0:\n    end()"
    read, at = _program(code, tmp_path)
    assert _guarded_call(read, at) is None
    guard = read.guard(at)
    assert guard is not None
    assert (guard.holds, guard.at.line, guard.test.text) == (True, 5, "rank == 0")
    assert guard.test.origins.of(Origin.RANK)


def test_no_line_is_no_call(tmp_path: Path) -> None:
    read, _ = _program("# collective", tmp_path)
    assert _guarded_call(read, None) is None
    assert _guarded_call(read, Where(str(tmp_path / "absent.py"), 3)) is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("if a:\n    if b:\n        f()  # collective", [("a", True), ("b", True)]),
        ("if a:\n    g()\nelse:\n    f()  # collective", [("a", False)]),
        ("for x in y:\n    if a:\n        continue\n    f()  # collective", [("a", False)]),
        ("if a:\n    g()\nelse:\n    raise E\nf()  # collective", [("a", True)]),
        ("if a:\n    os._exit(1)\nf()  # collective", [("a", False)]),
        ("while a:\n    f()  # collective", [("a", True)]),
        ("try:\n    g()\nexcept E:\n    if a:\n        f()  # collective", [("a", True)]),
        ("if a:\n    def g():\n        f()  # collective", []),
        ("if a:\n    g()\nf()  # collective", []),
        ("match a:\n    case 0 | 1:\n        f()  # collective", [("a == 0 or a == 1", True)]),
        (
            "match a:\n    case 'b':\n        g()\n    case None:\n        g()\n    case _:\n        f()  # collective",
            [("a == 'b'", False), ("a is None", False)],
        ),
        ("match a:\n    case _ if b:\n        f()  # collective", [("b", True)]),
        ("match a:\n    case 0:\n        return\nf()  # collective", [("a == 0", False)]),
        ("match a:\n    case [b, c]:\n        f()  # collective", []),
        ("match g():\n    case 0:\n        f()\n    case 1:\n        f()  # collective", []),
    ],
)
def test_the_conditions_in_front_of_a_line(
    tmp_path: Path, code: str, expected: list[tuple[str, bool]]
) -> None:
    read, at = _program(code, tmp_path)
    assert [(it.test.text, it.holds) for it in read.conditions(at)] == expected


@pytest.mark.parametrize(
    ("test", "guards"),
    [
        ("rank == 0", True),
        ("not rank", True),
        ("rank == 0 and step % 10 == 0", True),
        ("os.environ.get('LOCAL_RANK') == '0'", True),
        ("loss_of(rank) < 3", False),
        ("dist.get_world_size() > 1", False),
    ],
)
def test_which_conditions_are_on_the_rank(tmp_path: Path, test: str, guards: bool) -> None:
    read, at = _program(f"if {test}:\n    f()  # collective", tmp_path)
    assert (read.guard(at) is not None) == guards
