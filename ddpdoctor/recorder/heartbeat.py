"""Says where the main thread is, or the one that trains, again and again, in one small file that is written over.

The background thread looks, so training pays nothing for it, and it looks while the main thread waits in C++.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any

from .active_exception import handled
from .where import absolute

if TYPE_CHECKING:
    from .session import Session

SUFFIX = ".now"
_SIZE = 4096
"""Bytes of the file; one write of a page, so that a reader sees all of it or the one before."""
_MOST_FRAMES = 12
_MOST_PLACES = 1000
_STILL = 1.0
"""Seconds in one place, after which it is looked at what is handled there."""
_HERE = os.path.dirname(os.path.abspath(__file__))


class Heartbeat:
    """The file of one process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._file = -1
        self._pid = self._length = 0
        self._counted: dict[str, Any] = {}
        self._places: set[Any] = set()
        """Where it was since the counts last changed: who waits in a loop comes to the same few again and again."""
        self._moved = 0.0

    def tick(self) -> None:
        """Look at the thread and write down where it is."""
        now = round(time.monotonic(), 3)
        counts = self._counts()
        stacks, main = sys._current_frames(), threading.main_thread().ident or 0
        thread = self._session.thread or main
        thread = thread if thread in stacks else main
        frame = stacks.get(thread)
        # This frame is in it, and it in this frame: what the script lets go of would live on in its frames.
        del stacks
        frames = _innermost(frame)
        place = tuple((id(frame.f_code), frame.f_lasti) for frame in frames)
        if counts != self._counted or len(self._places) > _MOST_PLACES:
            self._counted = counts
            self._places.clear()
        if place not in self._places:
            self._places.add(place)
            self._moved = now
        at, stack = self._own(frame), [_plain(frame) for frame in reversed(frames)]
        del frame
        frames.clear()
        values = {"t": now, "thread": threading.get_native_id(), "moved": self._moved, **counts}
        values["main"] = thread == main
        if now - self._moved > _STILL:  # the exceptions of a run that goes on are nobody's business
            values["handles"] = handled(thread, self._session.sites.is_foreign)
        self._write({**values, "at": at, "stack": stack})

    def _counts(self) -> dict[str, Any]:
        session = self._session
        training = session.shared.get("Training")
        return {
            "steps": session.steps,
            "backwards": session.backwards,
            "collectives": training.collectives if training else 0,
            "waited": round(session.waited, 6),
        }

    def _own(self, frame: FrameType | None) -> list[Any] | None:
        """The innermost place in the user's own code."""
        while frame is not None:
            if not self._session.sites.is_foreign(frame.f_code.co_filename):
                return _plain(frame)
            frame = frame.f_back
        return None

    def _write(self, values: dict[str, Any]) -> None:
        text = json.dumps(values, separators=(",", ":")).encode()
        while len(text) > _SIZE and values["stack"]:
            values = {**values, "stack": values["stack"][1:]}
            text = json.dumps(values, separators=(",", ":")).encode()
        if self._pid != os.getpid():  # the first, or the first after a fork
            writer = self._session.writer
            path = os.path.join(writer.folder, writer.name + SUFFIX)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._pid = os.getpid()
        self._length = max(self._length, len(text))  # what was there before is written over
        os.pwrite(self._file, text.ljust(self._length), 0)


def _innermost(frame: FrameType | None) -> list[FrameType]:
    """The innermost frames, innermost first, without the recorder's."""
    frames: list[FrameType] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        if not frame.f_code.co_filename.startswith(_HERE):
            frames.append(frame)
        frame = frame.f_back
    return frames


def _plain(frame: FrameType) -> list[Any]:
    code = frame.f_code
    # A frame that another thread runs may have no line at the moment.
    return [code.co_name, absolute(code.co_filename), frame.f_lineno or code.co_firstlineno]
