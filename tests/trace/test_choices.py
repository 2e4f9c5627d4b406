"""Which comparison chooses the best checkpoint."""

from pathlib import Path

import pytest

from ddpdoctor.model import Where
from ddpdoctor.trace.choices import choice_of_best


def line_of_choice(folder: Path, text: str) -> int | None:
    file = folder / "train.py"
    file.write_text(text)
    line = next(number for number, code in enumerate(text.splitlines(), 1) if "torch.save" in code)
    choice = choice_of_best(Where(str(file), line, "train"))
    return choice.line if choice else None


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("if loss < best:\n    best = loss\n    torch.save(model, path)\n", 1),
        (
            "if rank == 0:\n    if self.best <= acc:\n        self.best = acc\n        torch.save(model, path)\n",
            2,
        ),
        ("if rank == 0 and loss < best:\n    torch.save(model, path)\n    best = loss\n", 1),
        ("def save():\n    torch.save(model, path)\nif loss < best:\n    best = loss\n    save()\n", 3),
        # Every some steps, and whatever the number is.
        ("if step > begin:\n    torch.save(model, path)\n", None),
        ("if loss < best:\n    best = loss\ntorch.save(model, path)\n", None),
        ("if epoch % 5 == 0:\n    epoch = 0\n    torch.save(model, path)\n", None),
    ],
)
def test_the_comparison_around_a_save(tmp_path: Path, text: str, line: int | None) -> None:
    assert line_of_choice(tmp_path, text) == line
