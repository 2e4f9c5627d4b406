"""The lines of the script that a process reaches, from one training step to the next, and what its branches go by.

In the steps that are written down in full, the start of the script among them. On Python 3.12 and later from
``sys.monitoring``, which costs nothing once a line was seen; before that from a trace function, which is set in those
steps only, and never where a debugger or a coverage tool has set one.
"""

from __future__ import annotations

import _thread
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..branches import Branches, branches_of, values_at
from ..events.process import Called, Code, Decided, Plain, Reached
from ..patch import guarded
from ..session import Part, Session
from ..where import absolute

if TYPE_CHECKING:
    from ..line_observers import LineMonitor, LineTrace

_MOST_CODES = 4000
_MOST_CALLERS = 50
"""Lines from which a function is called that are written down."""
MOST_ENTRIES = 16
"""Of a function in a training step, whose callers are looked at."""
_MOST_DECISIONS = 20_000
"""Values of conditions, of the whole run."""
_MOST_FRAMES = 64
_WAIT_SECONDS = 1.0


@dataclass(eq=False)
class Entered:
    """A function of the script that was entered."""

    number: int
    code: CodeType
    """Held, so that its identity is its own."""
    branches: Branches
    entries: int = 0
    """How often it was entered in this training step."""
    lines: set[int] = field(default_factory=set)
    """Those reached in this training step. Always the same set: what observes the lines holds it."""
    values: dict[int, dict[str, Plain]] = field(default_factory=dict)
    """What was last told of each condition."""
    callers: set[tuple[int, int]] = field(default_factory=set)
    tracer: Any = None
    """The trace function of its frames, where one is used."""


class Lines(Part):
    """Of a process; one for each session."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.observer: LineTrace | LineMonitor | None = None
        self.is_foreign = session.sites.is_foreign
        self.codes: dict[int, Entered] = {}
        """By the identity of the code: to compare code takes as long as a line of it. Always the same dictionary."""
        self._lock = _thread.allocate_lock()
        self._begin_record()

    def _begin_record(self) -> None:
        self.active = False
        self.codes.clear()
        self.news = 0
        """Lines that were noticed so far."""
        self._written = 0
        self._current = Reached(0, 0)
        self._partial = False
        self._decisions = 0
        self._before: dict[int, frozenset[int]] = {}
        self._order: list[tuple[int, int]] = []
        self._order_before: tuple[tuple[int, int], ...] = ()

    # What is noticed.

    def enter(self, code: CodeType, caller: FrameType | None) -> Entered | None:
        """A function of the script is entered, called by this frame; None where there are too many."""
        entered = self.codes.get(id(code)) or self._meet(code)
        if entered is not None:
            entered.entries += 1
            if entered.entries <= MOST_ENTRIES and len(entered.callers) < _MOST_CALLERS:
                self._tell_caller(entered, caller)
        return entered

    def _meet(self, code: CodeType) -> Entered | None:
        if len(self.codes) >= _MOST_CODES:
            self._partial = True
            return None
        entered = self.codes[id(code)] = Entered(len(self.codes), code, branches_of(code))
        branches = tuple((line, *after) for line, after in sorted(entered.branches.next.items()))
        function = getattr(code, "co_qualname", code.co_name)
        file = absolute(code.co_filename)
        self.session.event(Code(entered.number, file, function, code.co_firstlineno, branches))
        return entered

    def _tell_caller(self, entered: Entered, frame: FrameType | None) -> None:
        while frame is not None and self.is_foreign(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None or (id(frame.f_code), frame.f_lasti) in entered.callers:
            return
        entered.callers.add((id(frame.f_code), frame.f_lasti))  # its site holds the code
        at = self.session.sites.site(frame.f_code, frame.f_lineno, frame.f_lasti)
        self.session.event(Called(entered.number, at))

    def reach(self, entered: Entered, line: int, frame: FrameType | None) -> None:
        """A line is to run, first in this training step; without a frame, values of a condition are left out."""
        entered.lines.add(line)
        self.news += 1
        if line in entered.branches.next:
            self._order.append((entered.number, line))
            if frame is not None and self._decisions < _MOST_DECISIONS:
                self._tell_values(entered, line, frame)

    def _tell_values(self, entered: Entered, line: int, frame: FrameType) -> None:
        recorded = entered.values.setdefault(line, {})
        values = values_at(self.session.torch, entered.branches.paths.get(line, {}), frame)
        news = {name: value for name, value in values.items() if _differs(recorded, name, value)}
        if news:
            recorded.update(news)
            self._decisions += 1
            self.session.event(Decided(entered.number, line, self._current.number, news))

    # From step to step.

    @guarded
    def begin(self, observer: LineTrace | LineMonitor) -> None:
        """Begin to observe: torch was imported."""
        self.observer = observer
        self.active = True
        observer.resume()
        self._stand()

    @guarded
    def open_step(self) -> None:
        """A training step begins, in the thread that trains."""
        # A step that is counted only began with the update before it.
        if self.observer is not None and not (self.active and self._current.step == self.session.steps):
            self._open(self.observer)

    def _open(self, observer: LineTrace | LineMonitor) -> None:
        options, detailed = self.session.options, self.session.detailed
        may = detailed or not (options.full or self.session.in_worker)
        in_time = self.session.steps < observer.most_steps or (detailed and not options.watched)
        was_active, self.active = self.active, may and in_time
        if was_active:
            self._close()
        self._current.step = self.session.steps
        if self.active:
            observer.resume()
            self._stand()
        elif was_active:
            observer.pause()

    def _stand(self) -> None:
        """The lines that the functions on the stack are at have been reached."""
        for frame in self.own_frames():
            entered = self.enter(frame.f_code, frame.f_back)
            if entered is not None and frame.f_lineno not in entered.lines:
                self.reach(entered, frame.f_lineno, None)

    def own_frames(self) -> Iterator[FrameType]:
        """The frames of the script on the stack, the innermost first."""
        return self.session.sites.own_frames(sys._getframe(1), _MOST_FRAMES)

    def has_gap(self) -> None:
        """Lines may have been reached in this step that were not noticed."""
        self._partial = True

    def write(self) -> None:
        """Write down what was reached so far in this step: it may be the last."""
        if self.active and self._written != self.news and self._lock.acquire(timeout=_WAIT_SECONDS):
            try:
                self._write()
            finally:
                self._lock.release()

    def _close(self) -> None:
        with self._lock:
            self._before = self._write()
            self._order_before = tuple(self._order)
            self._current = Reached(self._current.number + 1, self.session.steps)
            self._order.clear()
            self._partial = False
            for entered in list(self.codes.values()):
                entered.lines.clear()
                entered.entries = 0

    def _write(self) -> dict[int, frozenset[int]]:
        self._written = self.news
        now = {entered.number: frozenset(entered.lines) for entered in list(self.codes.values())}
        order = tuple(self._order)
        event = self._current
        event.more = tuple(_differences(now, self._before))
        event.fewer = tuple(_differences(self._before, now))
        event.order = None if order == self._order_before else order
        event.partial = self._partial
        self.session.event(event)
        return now

    @guarded
    def end(self, how: str) -> None:
        self.write()
        self.stop()

    def stop(self) -> None:
        if self.observer is not None:
            self.active = False
            self.observer.pause()

    def forked(self) -> None:
        """In a child, which has a record of its own, and no interest in lines before it trains."""
        self.stop()
        self._lock = _thread.allocate_lock()
        self._begin_record()


def _differs(recorded: dict[str, Plain], name: str, value: Plain) -> bool:
    known = recorded.get(name, recorded)
    return known is recorded or type(known) is not type(value) or known != value


def _differences(
    these: dict[int, frozenset[int]], others: dict[int, frozenset[int]]
) -> Iterator[tuple[int, ...]]:
    """The lines that only the first have, as ranges behind the number of their code."""
    for number, lines in these.items():
        if only := lines - others.get(number, frozenset()):
            yield (number, *_ranges(sorted(only)))


def _ranges(lines: list[int]) -> Iterator[int]:
    begin = end = lines[0]
    for line in lines[1:]:
        if line != end + 1:
            yield from (begin, end)
            begin = line
        end = line
    yield from (begin, end)


def install(session: Session) -> None:
    """Observe the script's lines from now on."""
    lines = Lines.of(session)
    if sys.version_info >= (3, 12):
        from ..line_observers import LineMonitor

        monitor = LineMonitor(lines)
        session.on_undo(monitor.undo)
        lines.begin(monitor)
    else:
        from ..line_observers import LineTrace

        trace = LineTrace(lines)
        session.patch(sys, "gettrace", trace.gettrace)
        session.writer.ticks.append(guarded(trace.tick))
        lines.begin(trace)
    session.on_undo(lines.stop)
    session.writer.ticks.append(guarded(lines.write))
    session.before_end.append(lines.end)
    session.when_opened.append(lines.open_step)
    os.register_at_fork(after_in_child=guarded(lines.forked))
