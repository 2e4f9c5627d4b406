"""Frames of stacks, and how people name the files in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ddpdoctor
from ddpdoctor.model import Where

_INSTALLED = re.compile(r"^.*/(?:site-packages|lib/python3[.\d]+)/(?!.*/site-packages/)")
_FOREIGN = re.compile(r"/(?:site|dist)-packages/|/lib/python3[.\d]*/|^<|/ddpdoctor/recorder/|^torch/")
_RECORDER = Path(ddpdoctor.__file__).parent / "recorder"


@dataclass(frozen=True)
class Frame:
    """One frame of a stack."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({short_path(self.file)}:{self.line})"


def is_of_recorder(file: str) -> bool:
    """Whether a frame is the recorder's, which stands between the user's call and torch's function."""
    return Path(file).is_relative_to(_RECORDER)


def short_path(file: str) -> str:
    """A source file as people name it: below the working directory, or below Python's libraries, else in full."""
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return _INSTALLED.sub("", file)


def where_of(frame: Frame) -> Where:
    """The place in the source that a frame names."""
    return Where(short_path(frame.file), frame.line, frame.function or None)


def is_of_script(frame: Frame) -> bool:
    """Whether a frame is the script's own: not torch's, Python's, an installed package's or the recorder's."""
    return not _FOREIGN.search(frame.file)


def where_in(stack: Sequence[Frame]) -> Where | None:
    """The innermost line of the script's own, of frames with the outermost first; the innermost where none is."""
    of_script = [frame for frame in stack if is_of_script(frame)]
    return where_of((of_script or stack)[-1]) if stack else None


def function(frame: Frame) -> str:
    """The name alone: some versions of py-spy put the class before it."""
    return frame.function.rpartition(".")[2]


_FAULTHANDLER_FRAME = re.compile(
    r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE
)


def parse_faulthandler(text: str) -> tuple[Frame, ...]:
    """The last stack that ``faulthandler`` wrote into a file, outermost frame first."""
    last = text.rpartition("Stack (most recent call first):")[2].rpartition("(most recent call first):")[2]
    frames = [Frame(m["function"], m["file"], int(m["line"])) for m in _FAULTHANDLER_FRAME.finditer(last)]
    return tuple(reversed(frames))
