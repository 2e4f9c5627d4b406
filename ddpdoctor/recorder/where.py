"""A place in the user's code."""

import glob
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

_INSTALLED = re.compile(r"^.*/(?:(?:site|dist)-packages|lib/python3[.\d]+)/(?!.*/(?:site|dist)-packages/)")
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/(?!torch/)[^/]+")


def package_of(file: str) -> str:
    """The folder of the installed package that a file is in, or a module that is installed alone; empty for none. torch
    is the script of nobody, and so none of them."""
    package = _PACKAGE.match(file)
    place = package[0] if package else installed_elsewhere(file)
    return "" if os.path.basename(place) == "torch" else place


@cache
def installed_elsewhere(file: str) -> str:
    """The folder, or the module, of a library outside of Python's own folders that a file is in; empty for none. It is
    one that pip's --target installed, which lists its files beside itself, or torch where it was built."""
    folder, inside = os.path.split(file)
    while folder not in ("", os.path.dirname(folder)):
        if os.path.basename(folder) == "torch" and os.path.isfile(os.path.join(folder, "version.py")):
            return folder
        line = inside.replace(os.sep, "/") + ","
        for record in glob.glob(os.path.join(glob.escape(folder), "*.dist-info", "RECORD")):
            with suppress(OSError, UnicodeDecodeError), open(record, encoding="utf-8") as files:
                if any(listed.startswith(line) for listed in files):
                    return os.path.join(folder, inside.partition(os.sep)[0])
        folder, name = os.path.split(folder)
        inside = os.path.join(name, inside)
    return ""


def is_in_package(file: str, package: str) -> bool:
    """Whether a file is that package's; none is that of the empty name."""
    return bool(package) and f"{file}/".startswith(f"{package}/")


def below_libraries(file: str) -> str:
    """A file as people name it: one of an installed package, or of Python, without the folder that holds them all."""
    return _INSTALLED.sub("", file)


def absolute(file: str) -> str:
    """The absolute path of a file that code was compiled from; ``<string>`` and its like are none, and stay."""
    return file if file.startswith("<") else os.path.abspath(file)


@dataclass(frozen=True)
class Where:
    """A place in the user's code; ``file`` is relative to the working directory where it lies below it."""

    file: str
    line: int | None = None
    function: str | None = None
    columns: tuple[int, int] | None = field(default=None, compare=False, kw_only=True)
    """First and end of the expression on the line, in bytes of UTF-8, where Python knows it (from 3.11 on)."""

    def __str__(self) -> str:
        file = below_libraries(self.file)
        return file if self.line is None else f"{file}:{self.line}"

    @property
    def place(self) -> tuple[str, int | None]:
        """Its line alone, so that a call and the frame of a traceback compare equal."""
        return self.file, self.line


@dataclass(frozen=True, eq=False)
class Site(Where):
    """A place in the process that is recorded: written down once with its number, which stands for it in events."""

    number: int = -1

    __eq__ = object.__eq__  # there is one of each place, and comparing texts would cost every training step
    __hash__ = object.__hash__
