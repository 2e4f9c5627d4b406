"""Finds the user's own line: the innermost frame outside torch, site-packages, Python itself and the recorder."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Sequence
from itertools import islice
from types import CodeType, FrameType, TracebackType

from .where import Site

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOREIGN_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def _python_itself() -> tuple[str, ...]:
    places = (sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib"))
    return tuple(place + os.sep for place in places if place)


def _columns(code: CodeType, line: int, instruction: int) -> tuple[int, int] | None:
    """What the instruction is about on its line; None where Python does not know it, or where it spans lines."""
    if sys.version_info < (3, 11) or instruction < 0:
        return None
    position = next(islice(code.co_positions(), instruction // 2, None), None)
    if position is None or position[:2] != (line, line):
        return None
    _, _, first, end = position
    return None if first is None or end is None else (first, end)


def _was_given(frame: FrameType, values: Sequence[object]) -> bool:
    """Whether all of these are arguments of a function that runs."""
    code = frame.f_code
    several, named = bool(code.co_flags & inspect.CO_VARARGS), code.co_argcount + code.co_kwonlyargcount
    given = [frame.f_locals.get(name) for name in code.co_varnames[:named]]
    given += frame.f_locals.get(code.co_varnames[named], ()) if several else ()
    return all(any(value is argument for argument in given) for value in values)


class Sites:
    """Places in code."""

    def __init__(self, torch_folder: str) -> None:
        self._foreign = (torch_folder + os.sep, _HERE + os.sep, *_python_itself())
        self._is_foreign: dict[str, bool] = {}
        self._known: dict[tuple[CodeType, int], Site] = {}
        self.fresh: list[Site] = []
        """Places that nobody has written down yet."""

    def is_foreign(self, file: str) -> bool:
        """Whether code in this file is somebody else's than the user's."""
        known = self._is_foreign.get(file)
        if known is None:
            known = self._is_foreign[file] = self._look(file)
        return known

    def _look(self, file: str) -> bool:
        if file.startswith("<"):
            return True
        place = os.path.abspath(file)
        return place.startswith(self._foreign) or any(part in place for part in _FOREIGN_PARTS)

    def here(self, handed_on: Sequence[object] = ()) -> Site | None:
        """The place from which the user's code came to the caller; None where there is none.

        Args:
            handed_on: what a function may have been given only to pass it on; then the place is its caller's.
        """
        frame: FrameType | None = sys._getframe(1)
        innermost = outermost_script = None
        while frame is not None:
            if not self.is_foreign(frame.f_code.co_filename):
                innermost = innermost or frame
                if not (handed_on and _was_given(frame, handed_on)):
                    return self.site(frame.f_code, frame.f_lineno, frame.f_lasti)
            if frame.f_globals.get("__name__") == "__main__":
                outermost_script = frame
            frame = frame.f_back
        # A script that is itself installed, run by -m.
        place = innermost or outermost_script
        return self.site(place.f_code, place.f_lineno, place.f_lasti) if place is not None else None

    def library(self) -> str:
        """The module of the installed package that the user's code called on the way to the caller; empty for none."""
        frame: FrameType | None = sys._getframe(1)
        module = ""
        while frame is not None and self.is_foreign(frame.f_code.co_filename):
            if self._is_installed(frame.f_code.co_filename):
                module = str(frame.f_globals.get("__name__", ""))
            frame = frame.f_back
        return module

    def _is_installed(self, file: str) -> bool:
        """Whether code in this file belongs to a package beside torch and this one."""
        return not file.startswith(self._foreign[:2]) and any(part in file for part in _FOREIGN_PARTS)

    def site(self, code: CodeType, line: int, instruction: int) -> Site:
        """A place, the same one for the same instruction each time."""
        key = (code, instruction)
        known = self._known.get(key)
        if known is None:
            function = getattr(code, "co_qualname", code.co_name)
            file, columns = os.path.abspath(code.co_filename), _columns(code, line, instruction)
            known = Site(file, line, function, len(self._known), columns=columns)
            self._known[key] = known
            self.fresh.append(known)
        return known

    def tell_again(self) -> None:
        """Take all places for fresh: a forked child has a record of its own."""
        self.fresh = list(self._known.values())

    def of_traceback(self, trace: TracebackType | None) -> Site | None:
        """The innermost place of the user's in a traceback."""
        innermost = None
        while trace is not None:
            if not self.is_foreign(trace.tb_frame.f_code.co_filename):
                innermost = self.site(trace.tb_frame.f_code, trace.tb_lineno, trace.tb_lasti)
            trace = trace.tb_next
        return innermost
