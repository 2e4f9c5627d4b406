"""Scripts that each have one problem, and their corrected twins, for ``ddpdoctor demo`` and for the tests.

A script says by comments, ``# expect: DD206 ranks 0``, what is to be found in it. Beside it stands its correction, a
diff without line numbers: each part between ``@@`` replaces lines of the script.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

_EXPECTATION = re.compile(r"  # expect: .*$", re.MULTILINE)
_NEXT = "@@\n"


@dataclass(frozen=True)
class Demo:
    """A script with a problem, and without."""

    path: Path
    """Of the script; its name begins with the code of the check that finds the problem."""

    @property
    def code(self) -> str:
        """The check's."""
        return self.path.stem.partition("_")[0].upper()

    @property
    def summary(self) -> str:
        """What the script does wrong, in a sentence."""
        return (ast.get_docstring(ast.parse(self.sick)) or "").partition("\n")[0]

    @property
    def sick(self) -> str:
        """The script, without what the tests expect of it."""
        return _EXPECTATION.sub("", self.path.read_text(encoding="utf-8"))

    @property
    def healthy(self) -> str:
        """The corrected script."""
        text = self.sick
        for part in self.path.with_suffix(".fix").read_text(encoding="utf-8").split(_NEXT):
            lines = part.splitlines(keepends=True)
            before, after = ("".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
            assert text.count(before) == 1, f"{self.path.stem}: not once in the script: {before!r}"
            text = text.replace(before, after)
        return text


def demos() -> list[Demo]:
    """All of them, in the order of their codes."""
    return [Demo(path) for path in sorted(Path(__file__).parent.glob("dd*.py"))]
