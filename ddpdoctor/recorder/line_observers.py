"""What notices lines: ``sys.monitoring`` on Python 3.12 and later, in all threads; before that a trace function, in the
threads that train."""

from __future__ import annotations

import dis
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from .after_import import around_imports
from .events.process import RETURNED
from .patch import guarded, has_compiled, hide_from_compiler, hook
from .patches.lines import MOST_ENTRIES, Entered, Lines
from .sites import FUNCTION, TRACERS, is_traced_now

_NOTHING_NEW_SECONDS = 5.0
"""After which the trace function is taken away until the next training step: there is nothing left to notice in it."""
_MOST_TRACED = 20_000
"""Entries of one function, a microsecond each, after which a training step goes on without the trace function."""
_gettrace = sys.gettrace
"""The real one: the script is told of no trace function of ours."""
_RETURNS = (dis.opmap["RETURN_VALUE"],)
_OF_ONE_STATEMENT = "<genexpr>"
"""Python's name for code that each item enters anew, of which all lines are those of the statement around it."""


_TOOLS = (4, 3)
"""Numbers that no kind of tool has by convention."""


class LineTrace:
    """The trace function of a process."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        # Each takes up to four milliseconds longer.
        self.most_steps = 8 if lines.session.options.watched else 512
        self._on = [False]
        """Whether lines are noticed at all; a list, as a trace function reads it fastest."""
        self._news = -1
        self._since = 0.0
        self._reach = guarded(lines.reach)
        self._enter = guarded(self._tracer_of)
        self._return = guarded(self._returned)
        self._trace = self._make()
        self._hide(self._trace)
        self._is_standing_aside = False
        around_imports(self._is_set, self._let_import)
        self._is_updating = False
        torch, optim = lines.session.torch, sys.modules["torch.optim.optimizer"]
        lines.session.on_undo(optim.register_optimizer_step_pre_hook(hook(torch, self._let_update)).remove)
        lines.session.on_undo(optim.register_optimizer_step_post_hook(hook(torch, self._end_update)).remove)

    def _hide(self, function: Any) -> None:
        if function.__code__ not in TRACERS:
            TRACERS.add(function.__code__)
            hide_from_compiler(self._lines.session.torch, function, everything=True)

    def gettrace(self, original: Callable[[], Any]) -> Callable[[], Any]:
        """What ``sys.gettrace`` is for the script, which may ask whether a debugger looks on."""

        def gettrace() -> Any:
            function = original()
            return None if function is self._trace else function

        return gettrace

    def resume(self) -> None:
        """Set the trace function of this thread, unless somebody else has set one."""
        if _gettrace() not in (None, self._trace) or has_compiled():
            self._stand_aside()
            return
        self._end_update(has_gap=True)
        self._on[0], self._since, self._news = True, time.monotonic(), -1
        for frame in self._lines.own_frames():
            if frame.f_trace is None:
                frame.f_trace = self._tracer_of(frame)
        sys.settrace(self._trace)

    def pause(self) -> None:
        """Take it away, from other threads with the next function that they call."""
        self._on[0] = False
        if self._is_set():
            sys.settrace(None)
            for frame in self._lines.own_frames():
                _let_go(frame)

    def _is_set(self) -> bool:
        return _gettrace() is self._trace

    def _let_import(self, file: str) -> Callable[[], object] | None:
        """Take it away while a module of others runs, whose imports of others call a million functions."""
        if not self._is_set() or not self._lines.is_foreign(file):
            return None
        sys.settrace(None)
        return self._set_again

    def _let_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Take it away while torch alone updates weights, which is a hundred lines for each of them."""
        self._end_update(has_gap=True)
        if not self._is_set() or len(args) > 1 or kwargs:  # a closure is the script's
            return
        optim: Any = sys.modules["torch.optim.optimizer"]
        hooks = [optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks]
        hooks += [optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]
        codes = [getattr(each, "__code__", None) for several in hooks for each in several.values()]
        modules = [sys.modules.get(kind.__module__) for kind in type(optimizer).__mro__[:-1]]
        files = [getattr(it, "co_filename", getattr(it, "__file__", None)) or "" for it in codes + modules]
        if all(map(self._lines.is_foreign, files)):
            self._is_updating = True
            sys.settrace(None)

    def _end_update(self, *_: Any, has_gap: bool = False) -> None:
        """Set it again; an update that ended by an exception left lines behind it unnoticed."""
        if self._is_updating:
            self._is_updating = False
            self._set_again()
            if has_gap:
                self._lines.has_gap()

    def _set_again(self) -> None:
        if self._on[0] and _gettrace() is None:
            sys.settrace(self._trace)

    def tick(self) -> None:
        """Pause where nothing new comes, so that a long loop of the script's is not slowed down; in the background."""
        now, news = time.monotonic(), self._lines.news
        if news != self._news or self._is_in_library():
            self._news, self._since = news, now
        elif self._on[0] and now - self._since > _NOTHING_NEW_SECONDS:
            self._on[0] = False
            self._lines.has_gap()

    def _is_in_library(self) -> bool:
        """Whether the training thread is in code that is not the script's, of which no line is noticed anyway."""
        session = self._lines.session
        frame = sys._current_frames().get(session.thread or threading.main_thread().ident or 0)
        return frame is not None and session.sites.is_foreign(frame.f_code.co_filename)

    def _stand_aside(self) -> None:
        self._on[0] = False
        self._lines.has_gap()
        if not (self._is_standing_aside or has_compiled()):
            self._is_standing_aside = True
            self._lines.session.note("lines", "a debugger or a coverage tool traces the script already")

    def _tracer_of(self, frame: FrameType) -> Any:
        if (entered := self._lines.enter(frame.f_code, frame.f_back)) is None:
            return None
        if entered.tracer is None:
            entered.tracer = self._make_tracer(entered)
        return entered.tracer

    def _returned(self, entered: Entered, frame: FrameType) -> None:
        """It does by an instruction of its own; an exception ends it by another."""
        if frame.f_code.co_code[frame.f_lasti] in _RETURNS:
            self._lines.reach(entered, RETURNED, None)

    def _make(self) -> Any:
        on, enter, is_known = self._on, self._enter, self._lines.session.sites.known_as_foreign

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            if is_known.get(frame.f_code.co_filename, False):
                return None
            if not on[0]:
                sys.settrace(None)
                return None
            if (entered := codes.get(id(frame.f_code))) is not None and entered.entries >= MOST_ENTRIES:
                entered.entries += 1
                if entered.entries > _MOST_TRACED:
                    on[0] = False
                    lines.has_gap()
                if on[0] and entered.code.co_name != _OF_ONE_STATEMENT:
                    return entered.tracer
                frame.f_trace = None  # which returning None would leave
                return None
            return None if foreign(frame.f_code.co_filename) else enter(frame)

        lines = self._lines
        codes, foreign = lines.codes, lines.is_foreign
        return trace

    def _make_tracer(self, entered: Entered) -> Any:
        on, lines, reach, returned = self._on, entered.lines, self._reach, self._return
        trace = self._trace

        def trace_line(frame: FrameType, event: str, argument: Any) -> Any:
            if not on[0]:
                frame.f_trace = None
                if _gettrace() is trace:  # and no debugger's, which calls what it finds in a frame
                    sys.settrace(None)
                return None
            if event == "line":
                if frame.f_lineno not in lines:
                    reach(entered, frame.f_lineno, frame)
            elif event == "return" and RETURNED not in lines:
                returned(entered, frame)
            return trace_line

        self._hide(trace_line)
        return trace_line


def _let_go(frame: FrameType) -> None:
    """Take the trace function from a frame, with the copy of its variables that Python made for it."""
    frame.f_trace = None
    if frame.f_code.co_flags & FUNCTION and not is_traced_now(frame):
        frame.f_locals.clear()


class LineMonitor:
    """A tool of ``sys.monitoring``."""

    most_steps = 4096
    """Each takes about 100 bytes of the record."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 - not there before Python 3.12
        self._events, self._disable = self._monitoring.events, self._monitoring.DISABLE
        free = [number for number in _TOOLS if self._monitoring.get_tool(number) is None]
        self._tool: int | None = free[0] if free else None
        self._is_known = lines.session.sites.known_as_foreign
        self._enter, self._reach = guarded(self._entered), guarded(lines.reach)
        if self._tool is not None:
            self._monitoring.use_tool_id(self._tool, "ddpdoctor")
            self._register(self._events.PY_START, self._on_start)
            self._register(self._events.LINE, self._on_line)
            self._register(self._events.PY_RETURN, self._on_return)

    def _register(self, event: int, callback: Any) -> None:
        hide_from_compiler(self._lines.session.torch, callback.__func__, everything=True)
        self._monitoring.register_callback(self._tool, event, callback)

    def resume(self) -> None:
        """Notice each line once more."""
        if self._tool is None:
            self._lines.has_gap()
            return
        self._monitoring.set_events(self._tool, self._events.PY_START)
        self._monitoring.restart_events()
        for frame in self._lines.own_frames():
            self._entered(frame.f_code, frame.f_back)

    def pause(self) -> None:
        """Notice no more functions; each line that still comes is noticed in vain, once."""
        if self._tool is not None:
            self._monitoring.set_events(self._tool, 0)

    def undo(self) -> None:
        """Leave no trace."""
        if self._tool is not None:
            self._monitoring.set_events(self._tool, 0)
            for entered in self._lines.codes.values():
                self._monitoring.set_local_events(self._tool, entered.code, 0)
            self._monitoring.free_tool_id(self._tool)
            self._tool = None

    def _entered(self, code: CodeType, caller: Any) -> Any:
        met = id(code) in self._lines.codes
        if (entered := self._lines.enter(code, caller)) is not None and not met:
            wanted = self._events.LINE | self._events.PY_RETURN
            self._monitoring.set_local_events(self._tool, code, wanted)
        return self._disable if entered is None or entered.entries >= MOST_ENTRIES else None

    def _on_start(self, code: CodeType, _: int) -> Any:
        if self._is_known.get(code.co_filename, False) or self._lines.is_foreign(code.co_filename):
            return self._disable
        return self._enter(code, sys._getframe(1).f_back)

    def _on_line(self, code: CodeType, line: int) -> Any:
        entered = self._lines.codes.get(id(code))
        if self._lines.active and entered is not None and line not in entered.lines:
            self._reach(entered, line, sys._getframe(1))
        return self._disable

    def _on_return(self, code: CodeType, _: int, __: Any) -> Any:
        entered = self._lines.codes.get(id(code))
        if self._lines.active and entered is not None and RETURNED not in entered.lines:
            self._reach(entered, RETURNED, None)
        return self._disable
