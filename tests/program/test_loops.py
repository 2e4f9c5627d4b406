"""Which loops a rank has left for good, and by which branch."""

from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.program import Program
from ddpdoctor.program.loops import Loops

EPOCHS = """\
def train(model):
    for batch in batches:
        step(model)
        if bad(batch):
            break
    reduce(model)

def step(model):
    model.update()

def once(model):
    for batch in batches:
        model.update()
    reduce(model)

def main():
    for epoch in range(9):
        train(model)
        once(model)
        barrier()
        if stop:
            return
    barrier()

main()
barrier()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(EPOCHS)
    return file


def loops(script: Path) -> Loops:
    return Program(str(script)).loops


def at(script: Path, line: int, function: str) -> Where:
    return Where(str(script), line, function)


@pytest.mark.parametrize(
    ("update", "other", "behind", "branch"),
    [
        ((3, "train"), (6, "train"), True, 4),  # it breaks, though it will come again
        ((9, "step"), (6, "train"), True, 4),
        ((13, "once"), (14, "once"), False, None),  # the loop ends by itself, and begins again
        ((13, "once"), (20, "main"), False, None),  # in the loop that leads to the other line
        ((13, "once"), (23, "main"), True, 21),
        ((9, "step"), (23, "main"), True, 21),
        ((9, "step"), (26, "<module>"), True, 21),
        ((3, "train"), (3, "train"), False, 4),
    ],
)
def test_a_line_and_the_loops_around_another(script, update, other, behind, branch):
    inside, place = at(script, *update), at(script, *other)
    assert loops(script).is_behind(inside, place) is behind
    if behind:
        found = loops(script).exit_branch(inside, place)
        assert (found and found.line) == branch


def test_a_loop_with_a_condition_of_its_own(script):
    script.write_text("loss = 9\nwhile loss > 1:\n    loss = step()\nbarrier()\n")
    found = loops(script).exit_branch(at(script, 3, "<module>"), at(script, 4, "<module>"))
    assert found is not None
    assert (found.line, found.function) == (2, "<module>")


def test_of_two_branches_none_is_named(script):
    script.write_text(
        "def f():\n    while True:\n        if a:\n            break\n        if b:\n            break\n"
    )
    assert loops(script).exit_branch(at(script, 2, "f"), None) is None


def test_a_script_that_cannot_be_read(script):
    script.write_text("def f(:\n")
    assert not loops(script).is_behind(at(script, 2, "f"), at(script, 9, "f"))
    assert loops(script).is_behind(at(script, 2, "f"), at(script, 9, "<module>"))
    assert loops(script).exit_branch(at(script, 2, "f"), at(script, 9, "f")) is None


@pytest.mark.parametrize(
    ("body", "branch"),
    [
        ("if bad(loss):\n            skipped += 1\n            continue", 4),
        ("if good(loss):\n            pass\n        else:\n            continue", 4),
        ("if bad(loss):\n            log(loss)", None),
        ("if bad(loss):\n            continue\n        if worse(loss):\n            return", None),
    ],
    ids=["continue", "continue in else", "goes on", "two of them"],
)
def test_the_branch_that_leads_past_a_line(tmp_path, body, branch):
    file = tmp_path / "train.py"
    file.write_text(
        f"def fit():\n    for x in data:\n        loss = model(x)\n        {body}\n        loss.backward()\n"
    )
    last = len(file.read_text().splitlines())
    found = loops(file).skip_branch(Where(str(file), 3, "fit"), Where(str(file), last, "fit"))
    assert found == (Where(str(file), branch, "fit") if branch else None)


@pytest.mark.parametrize(
    ("handler", "branch"),
    [("continue", 6), ("print(error)", 6), ("raise", None), ("raise SystemExit(1) from error", None)],
)
def test_an_exception_leads_past_a_line_where_it_is_swallowed(tmp_path, handler, branch):
    file = tmp_path / "train.py"
    file.write_text(
        "try:\n    for x in data:\n        try:\n            x = altered(x)\n            loss = model(x)\n"
        f"        except ValueError as error:\n            {handler}\nexcept KeyboardInterrupt:\n    pass\n"
    )
    found = loops(file).skip_branch(Where(str(file), 2, "<module>"), Where(str(file), 5, "<module>"))
    assert found == (Where(str(file), branch, "<module>") if branch else None)


def test_the_condition_under_which_a_line_runs(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("loss = model(x)\nif good(loss):\n    loss.backward()\n")
    here = Where(str(file), 1, "<module>")
    assert loops(file).skip_branch(here, Where(str(file), 3, "<module>")) == Where(str(file), 2, "<module>")
    assert loops(file).skip_branch(here, None) is None


RETURNS = """\
def train(part):
    if not part:
        return
    build()

def shard(part):
    if part:
        build()
        return
    wait()
    report()

def main(args):
    if args.quick:
        print("quick")
    train(args.part)

def several(part):
    if part is None:
        return
    if not part:
        return
    build()

main()

def ends(part):
    if not part:
        raise SystemExit(0)
    build()
"""


@pytest.mark.parametrize(
    ("line", "branch"),
    [
        pytest.param(4, 2, id="in the function"),
        pytest.param(8, None, id="inside the branch that returns"),
        pytest.param(10, 7, id="behind it"),
        pytest.param(16, None, id="no branch returns"),
        pytest.param(23, None, id="one of two"),
        pytest.param(25, None, id="in no function"),
        pytest.param(30, 28, id="an exit"),
    ],
)
def test_the_branch_that_returns_ahead_of_a_line(tmp_path: Path, line: int, branch: int | None) -> None:
    file = tmp_path / "train.py"
    file.write_text(RETURNS)
    way_out = loops(file).early_return(at(file, line, ""))
    assert (way_out and way_out.line) == branch


def test_a_branch_of_the_function_that_calls_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "def wait():\n    barrier()\n\ndef main():\n    if empty:\n        return\n    wait()\n\nmain()\n"
    )
    branch = loops(file).early_return(at(file, 2, "wait"))
    assert branch == Where(str(file), 5, "main")


STEP = """\
def mean(value):
    all_reduce(value)

def log(value):
    mean(value)

def train(model):
    for batch in batches:
        loss = model(batch)
        if loss > 9:
            log(loss)
            barrier()
        loss.backward()
        all_gather(loss)
    for batch in validation:
        mean(batch)
"""


@pytest.mark.parametrize(
    ("line", "function", "between"),
    [
        (12, "train", True),
        (5, "log", True),
        (14, "train", False),
        (8, "train", False),
        (2, "mean", None),
        (99, "elsewhere", False),
    ],
)
def test_a_line_ahead_of_the_backward(tmp_path: Path, line: int, function: str, between: bool | None) -> None:
    script = tmp_path / "train.py"
    script.write_text(STEP)
    forward, backward = at(script, 9, "train"), at(script, 13, "train")
    assert loops(script).is_between(at(script, line, function), forward, backward) is between


def test_the_loop_that_begins_at_a_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STEP)
    loop = at(script, 8, "train")
    assert loops(script).is_in_loop_at(loop, at(script, 14, "train"))
    assert not loops(script).is_in_loop_at(loop, at(script, 16, "train"))
    assert not loops(script).is_in_loop_at(at(script, 9, "train"), at(script, 14, "train"))


def test_a_function_that_a_loop_calls_is_repeated_with_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(STEP)
    backward = at(script, 13, "train")
    assert loops(script).is_repeated_with(backward, at(script, 5, "log"))
    assert loops(script).is_repeated_with(backward, at(script, 12, "train"))
    assert not loops(script).is_repeated_with(backward, at(script, 16, "train"))
    assert loops(script).is_repeated_with(at(script, 2, "mean"), at(script, 5, "log"))
