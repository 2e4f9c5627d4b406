"""The code blocks of the documents, and what they run in."""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.command import free_port

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    """A fenced block, with what an HTML comment right above it says of it."""

    document: str
    language: str
    text: str
    mark: str


def blocks(*languages: str) -> list[Block]:
    """Every block in these languages, in all documents."""
    found = []
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))):
        for match in BLOCK.finditer(path.read_text()):
            if match["language"] in languages:
                name = str(path.relative_to(ROOT))
                found.append(Block(name, match["language"], match["text"], match["mark"] or ""))
    return found


def blocks_of(document: str, language: str) -> list[str]:
    """The texts of one document's blocks in a language."""
    return [block.text for block in blocks(language) if block.document == document]


def users_environ(python: Path = Path(sys.executable)) -> dict[str, str]:
    """An environment in which `ddpdoctor` and `python` are those beside this interpreter.

    With a port of its own: several tests at once would take the default one from each other. One thread in each
    process, as torchrun has it: more would spin where other tests run.
    """
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    home, port = os.environ.get("HOME", "/"), str(free_port())
    return {"PATH": path, "HOME": home, "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
