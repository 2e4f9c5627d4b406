"""A function as a script: what it uses of its notebook is in there."""

import math
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.function_script import script_of_function

NOTEBOOK = """
    import json as j
    from collections import Counter as Count
    from pathlib import Path
    import sys
    sys.path.insert(0, {root!r})
    from ddpdoctor.cli.function_script import script_of_function

    SIZES = {{"width": (4, 2.5), "names": ["a", None]}}
    unused = object()

    class Model:
        size = SIZES["width"]

        def __init__(self, lr=SIZES["width"][1]):
            self.lr = lr

    def doubled(x):
        return x if x > 8 else doubled(2 * x)

    def train(epochs, words):
        unused = Count(words)
        print(j.dumps([epochs, unused["a"], doubled(3), Model().lr, Model.size]))

    if __name__ == "__main__":
        print(script_of_function(train, (2, ["a", "a", float("inf")]), Path(sys.argv[1])))
"""
ROOT = Path(__file__).parents[2]


def test_a_function_of_a_notebook_brings_what_it_uses(tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.py"
    notebook.write_text(textwrap.dedent(NOTEBOOK.format(root=str(ROOT))))
    script = run(notebook, str(tmp_path))
    assert run(Path(script)) == "[2, 2, 12, 2.5, [4, 2.5]]"
    assert "object()" not in Path(script).read_text()


def run(script: Path, *arguments: str) -> str:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_function_of_a_module_is_imported(tmp_path: Path) -> None:
    text = script_of_function(textwrap.indent, ("a", "b"), tmp_path).read_text()
    assert "from textwrap import indent\n" in text
    assert text.endswith("    indent('a', 'b')\n")


@pytest.mark.parametrize(
    ("function", "args", "message"),
    [
        (lambda: None, (), "is not a function with a name"),
        (math.sqrt, (), "is not a function with a name"),
        (textwrap.indent, (object(),), "an argument of indent is of type object"),
    ],
)
def test_what_cannot_be_a_script_is_refused(function, args, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        script_of_function(function, args, tmp_path)
