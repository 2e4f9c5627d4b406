"""Lines to which no rank came: calls and decisions that a run says nothing of. Lines that ran are marked."""

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.process import Code, Reached
from ddpdoctor.recorder.events.schema import Event
from ddpdoctor.trace.not_reached import Unreached, not_reached
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording

SCRIPT = """\
import torch  # ran
import torch.distributed as dist  # ran


@torch.no_grad()  # ran
def evaluate(model):  # ran
    return model(1)


def save(model, path):  # ran
    torch.save(model, path)


def main(epochs, resume):  # ran
    dist.init_process_group("gloo")  # ran
    if resume:  # ran
        model = torch.load(resume)
    for epoch in range(epochs):  # ran
        if model(epoch) > 1000:  # ran
            if dist.get_rank() == 0:
                print("diverged")
            dist.barrier()
        if epoch % 10 == 9:  # ran
            evaluate(model)
            save(model, "a.pt")
    dist.all_reduce(model)  # ran


main(3, None)  # ran
"""


def record(folder: Path, text: str, *events: Event, partial: bool = False, step_count: int = 1) -> Recording:
    """A rank that reached the lines with the mark, in one step."""
    file = folder / "train.py"
    file.write_text(text)
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    ran = [number for number, line in enumerate(text.splitlines(), 1) if "# ran" in line]
    codes: list[Event] = [Code(0, str(file), "<module>", 1)]
    rows: list[tuple[int, ...]] = [(0, *_ranges(ran))]
    for number, function in enumerate(functions, 1):
        inside = [line for line in ran if function.body[0].lineno <= line <= (function.end_lineno or 0)]
        if inside:
            codes.append(Code(number, str(file), function.name, function.lineno))
            rows.append((number, *_ranges(inside)))
    record = Record.made(*codes, Reached(0, 0, tuple(rows), partial=partial), *events)
    return Recording(script=str(file), record=record, step_count=step_count)


def _ranges(numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(line for number in numbers for line in (number, number))


def found(folder: Path, text: str = SCRIPT, *events: Event, **fields: Any) -> list[Unreached] | None:
    recording = record(folder, text, *events, **fields)
    return not_reached({0: recording, 1: recording})


def test_each_with_the_condition_in_front_of_it(tmp_path: Path) -> None:
    missed = found(tmp_path)
    assert missed is not None
    assert [(it.kind, it.what, it.at.line, it.condition) for it in missed] == [
        ("evaluation", "torch.no_grad", 7, "epoch % 10 == 9"),
        ("save", "torch.save", 11, "epoch % 10 == 9"),
        ("load", "torch.load", 17, "resume"),
        ("decision", "if dist.get_rank() == 0", 20, "model(epoch) > 1000"),
        ("collective", "dist.barrier", 22, "model(epoch) > 1000"),
    ]


def test_a_run_that_came_everywhere(tmp_path: Path) -> None:
    text = "\n".join(
        line if "# ran" in line or not line else f"{line}  # ran" for line in SCRIPT.splitlines()
    )
    assert found(tmp_path, text) == []


@pytest.mark.parametrize("fields", [{"partial": True}, {"step_count": 2}])
def test_where_lines_were_not_watched_nothing_is_said(fields: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, SCRIPT, **fields) is None


def test_what_an_event_tells_of_was_reached_by_another_thread(tmp_path: Path) -> None:
    save = Save("a.pt", Where(str(tmp_path / "train.py"), 25), 1.0, 2.0)  # the line that handed the path on
    missed = found(tmp_path, SCRIPT, save)
    assert missed is not None
    assert "save" not in {it.kind for it in missed}


def test_workers_may_have_come_to_functions_that_the_rank_did_not_enter(tmp_path: Path) -> None:
    missed = found(tmp_path, SCRIPT, Loader(0, None, "Images", 8, workers=2))
    assert missed is not None
    assert [it.at.line for it in missed] == [17, 20, 22]


def test_constants_decide_nothing(tmp_path: Path) -> None:
    text = "import torch  # ran\nif False:\n    torch.save(1, 'a')\nwhile True:\n    break  # ran\n"
    missed = found(tmp_path, text)
    assert missed is not None
    assert [it.kind for it in missed] == ["save"]
