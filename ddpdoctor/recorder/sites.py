"""Finds the user's own line: the innermost frame outside torch, Python itself, the recorder and installed packages.

A script may be in an installed package itself: ``torchrun -m package.train``, or a command that pip made.
"""

import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import islice
from types import CodeType, FrameType, TracebackType
from typing import Any

from .where import Site, absolute, installed_elsewhere, is_in_package, package_of

_HERE = os.path.dirname(os.path.abspath(__file__))
_FOREIGN_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_COMMAND = re.compile(r"^from (\w+)[\w.]* import \w+$", re.MULTILINE)
"""In what pip writes for an entry point: the package that it belongs to."""
_LARGEST_COMMAND = 2048
"""Bytes."""
_WITHOUT_FILE = (["-c"], ["-"], [""])
"""What begins the arguments of Python where no file is run."""


FUNCTION = 1
"""The flag of code whose variables are not a dictionary by themselves."""
_READ_THEMSELVES = {"locals", "vars", "dir", "f_locals"}
"""What code may call that would see that copy."""
TRACERS: set[CodeType] = set()
"""The code of the recorder's own trace functions, where there are any."""


def _python_itself() -> tuple[str, ...]:
    places = (sysconfig.get_paths().get(name) for name in ("stdlib", "platstdlib"))
    return tuple(place + os.sep for place in places if place)


_PYTHON = _python_itself()


def _installed_script() -> str | None:
    """The installed package, or the file in one, that was started; empty for none, None while nobody knows it."""
    main = sys.modules.get("__main__")
    if (file := getattr(main, "__file__", None)) is None:
        return "" if getattr(sys, "argv", ["-m"])[:1] in _WITHOUT_FILE else None
    place = os.path.abspath(file)
    if not (package := package_of(place)):
        return _package_of_command(place)
    return package if getattr(main, "__spec__", None) is not None else place


def _package_of_command(place: str) -> str | None:
    """The installed package of a command that pip made; empty where it is none, None until it was imported."""
    try:
        if place.endswith(".py") or os.path.getsize(place) > _LARGEST_COMMAND:
            return ""
        with open(place, encoding="utf-8") as file:
            imports = _COMMAND.search(file.read())
    except (OSError, UnicodeDecodeError):
        return ""
    if imports is None:
        return ""
    origin = getattr(sys.modules.get(imports[1]), "__file__", None)
    return package_of(os.path.abspath(origin)) if origin else None


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
    if not (several or named):
        return False
    variables = variables_of(frame)
    given = [variables.get(name) for name in code.co_varnames[:named]]
    rest = variables.get(code.co_varnames[named]) if several else None
    given += rest if type(rest) is tuple else ()  # to iterate over what it became could change it
    return all(any(value is argument for argument in given) for value in values)


class Sites:
    def __init__(self, torch_folder: str) -> None:
        self._torch_and_here = (torch_folder + os.sep, _HERE + os.sep)
        self.known_as_foreign: dict[str, bool] = {}
        """Whether code is somebody else's than the user's, by its file, as far as that was asked."""
        self._script_package: str | None = None
        """The installed package, or the file in one, that is the script; empty for none, None while nobody knows."""
        self._known: dict[tuple[CodeType, int], Site] = {}
        self.fresh: list[Site] = []
        """Places that nobody has written down yet."""

    def is_foreign(self, file: str) -> bool:
        """Whether code in this file is somebody else's than the user's."""
        if (known := self.known_as_foreign.get(file)) is None:
            if (known := self._look(file)) is None:
                return True
            self.known_as_foreign[file] = known
        return known

    def _look(self, file: str) -> bool | None:
        """Whether it is; None while nobody knows which package the script is in."""
        if file.startswith("<"):
            return True
        place = os.path.abspath(file)
        if place.startswith(self._torch_and_here):
            return True
        if not any(part in place for part in _FOREIGN_PARTS):
            if place.startswith(_PYTHON):
                return True
            elsewhere = installed_elsewhere(place)
            # The script's own package is the user's there, too.
            script = os.path.abspath(getattr(sys.modules.get("__main__"), "__file__", None) or "")
            return bool(elsewhere) and not is_in_package(script, elsewhere)
        if self._script_package is None:
            self._script_package = _installed_script()
        package = self._script_package
        return None if package is None else not is_in_package(place, package)

    def here(self, handed_on: Sequence[object] = ()) -> Site | None:
        """The place from which the user's code came to the caller, or to a function that was given ``handed_on`` only
        to pass it on; None where there is none."""
        frame: FrameType | None = sys._getframe(1)
        innermost = None
        while frame is not None:
            if not self.is_foreign(frame.f_code.co_filename):
                innermost = innermost or frame
                if not (handed_on and _was_given(frame, handed_on)):
                    return self.site(frame.f_code, frame.f_lineno, frame.f_lasti)
            frame = frame.f_back
        return self.site(innermost.f_code, innermost.f_lineno, innermost.f_lasti) if innermost else None

    def own_frames(self, frame: FrameType | None, most: int = sys.maxsize) -> Iterator[FrameType]:
        """Those of the user's code among a frame and so many around it, the innermost first."""
        for _ in range(most):
            if frame is None:
                return
            if not self.is_foreign(frame.f_code.co_filename):
                yield frame
            frame = frame.f_back

    def library(self) -> str:
        """The module of the installed package that the user's code called on the way to the caller; empty for none."""
        frame: FrameType | None = sys._getframe(1)
        module = ""
        while frame is not None and self.is_foreign(frame.f_code.co_filename):
            file = frame.f_code.co_filename
            if not file.startswith(self._torch_and_here) and any(part in file for part in _FOREIGN_PARTS):
                module = str(frame.f_globals.get("__name__", ""))
            frame = frame.f_back
        return module

    def site(self, code: CodeType, line: int, instruction: int) -> Site:
        """A place, the same one for the same instruction each time."""
        key = (code, instruction)
        if (known := self._known.get(key)) is None:
            function = getattr(code, "co_qualname", code.co_name)
            file, columns = absolute(code.co_filename), _columns(code, line, instruction)
            known = Site(file, line, function, len(self._known), columns=columns)
            self._known[key] = known
            self.fresh.append(known)
        return known

    def tell_again(self) -> None:
        """Take all places for fresh: a forked child has a record of its own."""
        self.fresh = list(self._known.values())

    def of_traceback(self, trace: TracebackType | None) -> Site | None:
        """The innermost place of the user's in a traceback."""
        own = None
        while trace is not None:
            own = own if self.is_foreign(trace.tb_frame.f_code.co_filename) else trace
            trace = trace.tb_next
        return self.site(own.tb_frame.f_code, own.tb_lineno, own.tb_lasti) if own else None


_COPIED = sys.version_info < (3, 13)
"""Whether reading a function's variables by name leaves a copy in its frame."""


def gettrace() -> Any:
    """The trace function of this thread, ours apart: what ``sys.gettrace`` says to the script."""
    return sys.gettrace()


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables by name; empty where the function may look at the copy that Python keeps of them."""
    code = frame.f_code
    if _READ_THEMSELVES & {*code.co_names}:
        return {}
    variables = frame.f_locals
    copy = dict(variables)
    # A tracer's copy is written back into the function.
    if _COPIED and code.co_flags & FUNCTION and gettrace() is None and not is_traced_now(frame):
        variables.clear()  # else what the function has let go of would live on
    return copy


def is_traced_now(frame: FrameType) -> bool:
    """Whether a trace function of ours has been called for this frame and runs, as around a signal's handler."""
    inner: FrameType | None = sys._getframe(1) if TRACERS else None
    while inner is not None and inner is not frame:
        if inner.f_code in TRACERS and inner.f_back is frame:
            return True
        inner = inner.f_back
    return False
