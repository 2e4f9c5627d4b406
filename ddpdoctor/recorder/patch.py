"""The shape of most patches: what is ours before and after the user's own call, which stands outside every guard.

What goes wrong inside the recorder stays there: this is one of the two places for a broad except. An exception of the
user's goes on with a traceback in which none of our frames stands.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import traceback
from _thread import get_ident
from collections.abc import Callable
from time import thread_time
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Make = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What makes a replacement of a function."""
IN_FULL = object()
"""What a brief way returns that leaves a call to the full one."""


P = ParamSpec("P")
R = TypeVar("R")
_listeners: list[Callable[[str, str], None]] = []
_reported: set[str] = set()
_ABSENT: Any = object()
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_REHEARSE = os.path.join(_OURS, "rehearse") + os.sep
_PASSED_OVER = " (importlib._bootstrap)"
"""Part of the file names of frames that Python passes over for a warning about the caller's line."""
_OF_THE_SCRIPT = ("", "plain", "refuse")
"""Functions of the rehearsal that call what the script called, or raise what it would get on GPUs."""


class OwnTime:
    """CPU seconds that functions of ours take in one thread: no part of what the script itself does there."""

    def __init__(self) -> None:
        self.thread = 0
        """The one that is looked at; 0 for none."""
        self._seconds = self._began = 0.0
        """The latter of a function that is under way, else 0."""

    def begin(self) -> bool:
        """A function begins; False inside of another one, and in other threads."""
        if self._began or self.thread != get_ident():
            return False
        self._began = thread_time()
        return True

    def end(self) -> None:
        """The function for which :meth:`begin` was True is over."""
        self._seconds += thread_time() - self._began
        self._began = 0.0

    def total(self) -> float:
        """So far, in a function that is under way, too."""
        return self._seconds + (thread_time() - self._began if self._began else 0.0)


own_time = OwnTime()
"""Of the thread that trains, in steps that are written down in full."""


class Replaced(contextlib.ExitStack):
    """What was put in the place of something else; to close it puts all of that back, the last first."""

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute of a module or a class, or add it; what was inherited is inherited again."""
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, value)
        self.callback(*((delattr, owner, name) if before is _ABSENT else (setattr, owner, name, before)))


def watch(
    torch: Any,
    before: Callable[[Args, Kwargs], Any],
    after: Callable[[Any, Any, BaseException | None], object] = lambda *_: None,
    brief: Callable[[Callable[..., Any], Args, Kwargs], Any] = lambda *_: IN_FULL,
) -> Make:
    """Make a patch that looks on. What ``before`` makes of the arguments goes to ``after``, which is not called for
    None, with the result, or the exception, which then goes on to the user. ``brief`` makes the call itself, between a
    few counts, where nothing is to be looked at; or returns ``IN_FULL``."""
    hide_from_compiler(torch, before, everything=True)
    hide_from_compiler(torch, after, everything=True)
    hide_from_compiler(torch, unwarned(brief))
    return functools.partial(_looking_on, torch, before, after, brief)


def _looking_on(
    torch: Any,
    before: Callable[..., Any],
    after: Callable[..., object],
    brief: Callable[..., Any],
    original: Callable[..., Any],
) -> Callable[..., Any]:
    begin, end, is_compiling = guarded(before), guarded(after), torch.compiler.is_compiling
    is_traced = torch.compiler.is_dynamo_compiling  # at once; the other takes as long as all of a brief way

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_traced():
            return original(*args, **kwargs)
        begun = None
        try:
            result = brief(original, args, kwargs)
            if result is not IN_FULL:
                return result
            if is_compiling():
                return original(*args, **kwargs)
            if (begun := begin(args, kwargs)) is None:
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
        except BaseException as error:
            leave_out(error)
            if begun is not None:
                end(begun, None, error)
            raise
        end(begun, result, None)
        return result

    return call


def after_call(look: Callable[[Any, Args, Kwargs], object]) -> Make:
    """Make a patch that looks, guarded, at the result and the arguments of calls that returned."""
    guarded_look = guarded(look)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                leave_out(error)
                raise
            guarded_look(result, args, kwargs)
            return result

        return call

    return make


def around(call: Callable[..., Any]) -> Make:
    """Make a patch that does something else: ``call`` gets the original, and the arguments of each call of it."""
    unwarned(call)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(original, *args, **kwargs)
            except BaseException as error:
                leave_out(error)
                raise

        return replacement

    return make


def unwarned(function: Callable[..., Any]) -> Any:
    """The function; what it calls may warn about its caller's line, which is then the script's."""
    inner: Any = getattr(function, "func", function)  # of a partial
    inner = getattr(inner, "__func__", inner)
    if (code := getattr(inner, "__code__", None)) is not None:
        inner.__code__ = _passed_over(code)
    return function


@functools.cache
def _passed_over(code: CodeType) -> CodeType:
    file = code.co_filename
    return code if file.endswith(_PASSED_OVER) else code.replace(co_filename=f"{file}{_PASSED_OVER}")


def hook(torch: Any, function: Callable[..., object]) -> Callable[..., None]:
    """What torch may call in every training step: guarded, and nothing while torch.compile traces."""
    is_traced, guarded_function = torch.compiler.is_dynamo_compiling, guarded(function)

    def call(*args: Any) -> None:
        if not is_traced():
            guarded_function(*args)

    hide_from_compiler(torch, call)
    return call


def hide_from_compiler(torch: Any, function: Any, *, everything: bool = False) -> None:
    """Let torch.compile begin with what the function calls, as it would without us, and not with the function or any
    that shares its code; with ``everything``, leave out what it calls, too."""
    dynamo: Any = getattr(torch._C._dynamo, "eval_frame", None)
    code = getattr(getattr(function, "func", function), "__code__", None)  # a partial has none of its own
    if code is None:
        return
    if hasattr(dynamo, "set_code_exec_strategy"):
        action = dynamo._FrameAction
        below = action.SKIP if everything else action.DEFAULT
        dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(action.SKIP, below))
    elif hasattr(dynamo, "skip_code"):
        dynamo.skip_code(code)


def has_compiled() -> bool:
    """Whether torch.compile has compiled anything that it may still use."""
    compiled = getattr(sys.modules.get("torch._dynamo.convert_frame"), "input_codes", None)
    return bool(getattr(compiled, "seen", None))


def hide_package(torch: Any, package: str) -> None:
    """The same for all our code, where torch cannot leave out what a function calls (before 2.6)."""
    dynamo: Any = getattr(torch._C._dynamo, "eval_frame", None)
    if hasattr(dynamo, "set_code_exec_strategy") or not hasattr(dynamo, "skip_code"):
        return
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(package)]
    held = [value for module in modules for value in vars(module).values()]
    ours = [value for value in held if str(getattr(value, "__module__", "")).startswith(package)]
    ours += [value for kind in ours if isinstance(kind, type) for value in vars(kind).values()]
    ours += [value.__wrapped__ for value in ours if hasattr(value, "__wrapped__")]
    waiting = [code for value in ours if (code := getattr(value, "__code__", None)) is not None]
    while waiting:
        code = waiting.pop()
        dynamo.skip_code(code)
        waiting.extend(part for part in code.co_consts if isinstance(part, CodeType))


def on_fault(listener: Callable[[str, str], None]) -> None:
    """Have faults told to this function, as topic and text."""
    _listeners[:] = [listener]


def guarded(function: Callable[P, R]) -> Callable[P, R | None]:
    """Run a function of ours in the user's process: an exception in it is noted once and None returned. The user's own
    call never stands inside: its exceptions are not ours to catch."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
        timed = own_time.thread and own_time.begin()
        try:
            return function(*args, **kwargs)
        except Exception:  # noqa: BLE001 - a fault of ours costs a note, never the run
            report(name_of(function))
            return None
        finally:
            if timed:
                own_time.end()

    return call


@guarded
def nothing() -> None:
    """Shares its code with every guarded function."""


def name_of(function: Callable[..., Any]) -> str:
    """What a fault in a function is told under."""
    inner = getattr(function, "func", function)  # of a partial
    return getattr(inner, "__qualname__", None) or str(inner)


def report(topic: str) -> None:
    """Note the exception that is being handled, once for each topic."""
    if topic in _reported:
        return
    _reported.add(topic)
    text = traceback.format_exc(limit=-3)
    for listener in _listeners:
        try:
            listener(topic, text)
        except Exception:  # noqa: BLE001 - the disk may be full: then there is nobody left to tell
            pass


def caller() -> FrameType:
    """The frame behind all of ours: what called a function that was replaced, however many of ours are in between."""
    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame  # type: ignore[no-any-return]


def leave_out(error: BaseException) -> None:
    """Take what stands first of a traceback off it, as far as it is ours.

    To be called in the ``except`` through which the exception goes on by a bare ``raise``, which adds no frame. Frames
    stay where the rehearsal itself is at fault, which is told by them.
    """
    trace, name = error.__traceback__, ""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        code = trace.tb_frame.f_code
        name = code.co_name if code.co_filename.startswith(_REHEARSE) else name
        trace = trace.tb_next
    if name not in _OF_THE_SCRIPT:
        return
    error.__traceback__ = trace
    if sys.version_info < (3, 11):
        _handle(type(error), error, trace)


def _handle(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Have the interpreter handle an exception with another traceback: before 3.11, a bare raise takes its own."""
    python: Any = ctypes.pythonapi
    python.Py_IncRef.restype = python.PyErr_SetExcInfo.restype = None
    values = [ctypes.py_object(value) for value in (kind, error, trace)]
    for value in values:  # it keeps what it is given
        python.Py_IncRef(value)
    python.PyErr_SetExcInfo(*values)
