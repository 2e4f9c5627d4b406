"""At which lines of the script the time of a training step goes: a thread looks, now and then, where training is.

In the first training steps, which are all written down in full. What is waited for others is left out.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from types import FrameType

from ..events.training import LineTime, LineTimes
from ..patch import guarded
from ..session import Session
from ..training import TrainingPart
from ..waiting import queue_of_thread
from ..where import Where, absolute

_SECONDS = 0.005
"""Between two looks, each of which takes 20 us at most."""
_MOST_SECONDS = 0.1
_OF_A_STEP = 0.02
"""In a long step it looks less often: after this share of what the step has taken so far."""
_LEAST_TIME = 1e-4
"""Seconds at a line of a step that are written down."""
_Line = tuple[str, int, str]


def install(session: Session) -> None:
    """Look from the second training step on."""
    sampler = LineSampler(session)
    session.when_opened.append(sampler.open_step)
    session.on_undo(sampler.stop)


class LineSampler(TrainingPart):
    """Of a process; its thread is there while it looks."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._pid = 0
        """The process that has the thread."""
        self._stopped = False
        self._step = 0
        self._began = self._last = self._queued = 0.0
        self._seconds: dict[_Line, float] = {}

    @guarded
    def open_step(self) -> None:
        """A training step begins, in the thread that trains."""
        if (
            self.training.is_early
            and self._pid != os.getpid()
            and not (self._stopped or self.session.in_worker)
        ):
            self._pid = os.getpid()
            _thread.start_new_thread(self._keep_looking, (self._pid, threading.get_native_id()))

    def stop(self) -> None:
        self._stopped = True

    def _keep_looking(self, pid: int, training_thread: int) -> None:
        look = guarded(self._look)
        self._began = self._last = time.monotonic()
        self._queue = queue_of_thread(training_thread)
        self._queued = self._queue()
        self._step = self.session.steps
        self._seconds.clear()
        while self.training.is_early and not (self._stopped or self.session.ended):
            time.sleep(min(_MOST_SECONDS, max(_SECONDS, _OF_A_STEP * (self._last - self._began))))
            if pid != os.getpid():
                return
            look()
        guarded(self._write)()
        self._pid = 0

    def _look(self) -> None:
        now, step = time.monotonic(), self.session.steps
        if step != self._step:
            self._write()
            self._step, self._began = step, now
        queued = self._queue()
        passed = now - self._last - (queued - self._queued)
        self._last, self._queued = now, queued
        line = None if self.training.waits.open else self._line()
        if line is not None:
            self._seconds[line] = self._seconds.get(line, 0.0) + max(0.0, passed)

    def _line(self) -> _Line | None:
        """The innermost line of the script that the training thread is at."""
        main = threading.main_thread().ident or 0
        # Nothing of it may outlive this function: what the script lets go of would live on in its frames.
        frame: FrameType | None = sys._current_frames().get(self.session.thread or main)
        if (own := next(self.session.sites.own_frames(frame), None)) is None:
            return None
        code = own.f_code
        line = own.f_lineno or code.co_firstlineno
        return code.co_filename, line, getattr(code, "co_qualname", code.co_name)

    def _write(self) -> None:
        lines, self._seconds = self._seconds, {}
        times = tuple(
            LineTime(Where(absolute(file), line, function), round(seconds, 4))
            for (file, line, function), seconds in lines.items()
            if seconds >= _LEAST_TIME
        )
        if times:
            self.session.event(LineTimes(self._step, times))
