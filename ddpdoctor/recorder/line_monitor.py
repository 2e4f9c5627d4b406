"""Notices lines by ``sys.monitoring``: on Python 3.12 and later, in all threads."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from .events.lines import RETURNED
from .guard import guarded
from .lines import MOST_ENTRIES, Lines
from .patch import hide_from_compiler

_TOOLS = (4, 3)
"""Numbers that no kind of tool has by convention."""


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
        entered = self._lines.enter(code, caller)
        if entered is not None and not met:
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
