"""A metric that stays a rank's own beside one that is reduced."""

from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.trace.partial_reductions import left_local

HEAD = """\
def evaluate(model, loader):
    total_loss, correct, count = 0.0, torch.zeros(()), 0
    for x, y in loader:
        total_loss += criterion(model(x), y).item()
        correct += (model(x).argmax(1) == y).sum()
        count += len(y)
"""
LOCAL = """\
    dist.all_reduce(correct)
    return total_loss / count, correct / 100
"""
PRINTED = """\
    dist.all_reduce(correct)
    loss = total_loss / count
    print(f"test loss {loss:.3f}, accuracy {correct / 100:.3f}")
"""
TOGETHER = """\
    stats = torch.tensor([total_loss, correct])
    dist.all_reduce(stats)
    return stats[0], stats[1]
"""
BY_A_HELPER = """\
    dist.all_reduce(correct)
    loss = reduced_mean(total_loss, count)
    return loss, correct / 100
"""
KEPT = """\
    dist.all_reduce(correct)
    return correct / 100
"""
NONE_REDUCED = """\
    dist.all_reduce(seconds)
    return total_loss / count, correct / 100
"""


@pytest.mark.parametrize(
    ("end", "local"),
    [
        (LOCAL, ("total_loss", "loss")),
        (PRINTED, ("total_loss", "loss")),
        (TOGETHER, None),
        (BY_A_HELPER, None),
        (KEPT, None),
        (NONE_REDUCED, None),
    ],
)
@pytest.mark.parametrize("line", [7, 40])
def test_what_an_evaluation_leaves_local(
    tmp_path: Path, end: str, local: tuple[str, str] | None, line: int
) -> None:
    """A collective elsewhere may be the caller's, who may reduce what is returned."""
    file = tmp_path / "train.py"
    file.write_text(HEAD + end)
    call = Collective(1.0, Where(str(file), line, "evaluate"), "all_reduce", shape=())
    inside = left_local(Where(str(file), 3, "evaluate"), [call])
    assert inside == (local if line == 7 else None)


def test_an_evaluation_without_a_collective(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(HEAD + LOCAL)
    assert left_local(Where(str(file), 3, "evaluate"), []) is None
