"""Which training loops end by each rank's own clock."""

from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.trace.clock_exits import clock_exit

LOOP = """\
BUDGET = 3 * 3600
def train(limit):
    start = time.time()
    for batch in loader:
        optimizer.step()
        {}
"""


def exit_of(folder: Path, text: str, line: int = 5) -> int | None:
    file = folder / "train.py"
    file.write_text(text)
    found = clock_exit(Where(str(file), line, "train"))
    return found.line if found else None


@pytest.mark.parametrize(
    "ends",
    [
        "if time.time() - start > 600: break",
        "if time.time() - start >= BUDGET: return",
        "spent = time.time() - start\n        if spent > BUDGET:\n            break",
        "if (datetime.now() - begun).seconds > 60: break",
    ],
)
def test_a_loop_that_ends_by_the_clock(tmp_path: Path, ends: str) -> None:
    assert exit_of(tmp_path, LOOP.format(ends)) in (6, 7)


def test_a_loop_whose_own_condition_is_the_clock(tmp_path: Path) -> None:
    text = "start = time.monotonic()\nwhile time.monotonic() - start < 60:\n    optimizer.step()\n"
    assert exit_of(tmp_path, text, 3) == 2


@pytest.mark.parametrize(
    "ends",
    [
        # The limit may be none, or for tests alone.
        "if limit and time.time() - start > limit: break",
        "if time.time() - start > limit: break",
        # What is computed from the time is exchanged.
        "stop = torch.tensor(time.time() - start > 600)\n        dist.broadcast(stop, 0)\n        if stop: break",
        "spent = agree(time.time() - start)\n        if spent > 600:\n            break",
        # The loop goes on.
        "if time.time() - start > 600: print('slow')",
        "if step > 600: break",
    ],
)
def test_a_loop_of_which_that_is_not_certain(tmp_path: Path, ends: str) -> None:
    assert exit_of(tmp_path, LOOP.format(ends)) is None


BUDGET = """\
class Budget:
    def spent(self):
        return {}

while not budget.spent():
    optimizer.step()
"""


def test_a_loop_whose_condition_asks_a_clock_of_the_scripts(tmp_path: Path) -> None:
    assert exit_of(tmp_path, BUDGET.format("time.monotonic() - self.start > self.seconds"), 6) == 5


@pytest.mark.parametrize(
    "answer",
    [
        "self.limit is not None and time.monotonic() > self.limit",
        "agree(time.monotonic()) > self.limit",
        "self.steps > self.limit",
    ],
)
def test_a_condition_that_may_be_the_same_on_all_ranks(tmp_path: Path, answer: str) -> None:
    assert exit_of(tmp_path, BUDGET.format(answer), 6) is None
