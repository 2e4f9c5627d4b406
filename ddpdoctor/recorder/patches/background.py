"""What the background thread tells beside the record, between two flushes: where the main thread is, or the one that
trains, in one small file that is written over again and again; and answers to whoever asks where it is.

So training pays nothing for it, and a process answers whose main thread is blocked in C++, or to which another process
may not attach.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from traceback import walk_stack, walk_tb
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from ..patch import guarded
from ..session import Session
from ..where import absolute

SUFFIX = ".now"
_SIZE = 4096
"""Bytes of the file; one write of a page, so that a reader sees all of it or the one before."""
_MOST_FRAMES = 12
_MOST_PLACES = 1000
_STILL = 1.0
"""Seconds in one place, after which it is looked at what is handled there. A thread that counts something meanwhile is
looked at as seldom."""
_RECORDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LONGEST = 200
"""Characters of the message of an exception."""
_MOST_LINES = 8
"""Through which an exception came."""
REQUEST = "asked"
"""The file in the folder of records whose content, any text without meaning, is repeated in the answer."""
_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")
"""How torch's function is called: since 2.8, and before."""


def install(session: Session) -> None:
    """Have it look between two flushes."""
    session.writer.ticks += [guarded(Heartbeat(session).tick), guarded(Asked(session).look)]


class Heartbeat:
    """The file of one process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._file = -1
        self._pid = self._length = 0
        self._counted: dict[str, Any] = {}
        self._place: dict[str, Any] = {}
        """Where it was at the last look."""
        self._looked = 0.0
        self._places: set[Any] = set()
        """Where it was since the counts last changed: who waits in a loop comes to the same few again and again."""
        self._moved = 0.0

    def tick(self) -> None:
        """Look at the thread and write down where it is."""
        now = round(time.monotonic(), 3)
        counts = self._counts()
        if counts != self._counted or len(self._places) > _MOST_PLACES:
            self._counted, self._moved = counts, now
            self._places.clear()
            if now - self._looked < _STILL:
                self._write({"t": now, "moved": now, **counts, **self._place})
                return
        self._looked = now
        stacks, main = sys._current_frames(), threading.main_thread().ident or 0
        thread = self._session.thread or main
        thread = thread if thread in stacks else main
        frame = stacks.get(thread)
        # This frame is in it, and it in this frame: what the script lets go of would live on in its frames.
        del stacks
        frames = _innermost(frame)
        place = tuple((id(frame.f_code), frame.f_lasti) for frame in frames)
        if place not in self._places:
            self._places.add(place)
            self._moved = now
        own = next(self._session.sites.own_frames(frame), None)
        at = own and _place(own.f_code, own.f_lineno)
        stack = [_place(it.f_code, it.f_lineno) for it in reversed(frames)]
        del frame, own
        frames.clear()
        self._place = {"thread": threading.get_native_id(), "main": thread == main, "at": at, "stack": stack}
        values = {"t": now, "moved": self._moved, **counts}
        if now - self._moved > _STILL:  # the exceptions of a run that goes on are nobody's business
            values["handles"] = handled(thread, self._session.sites.is_foreign)
        self._write({**values, **self._place})

    def _counts(self) -> dict[str, Any]:
        session = self._session
        training = session.shared.get("Training")
        return {
            "steps": session.steps,
            "backwards": session.backwards,
            "collectives": training.collectives if training else 0,
            "waited": round(session.waited, 6),
        }

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
    stack = walk_stack(frame) if frame else ()
    frames = (it for it, _ in stack if not it.f_code.co_filename.startswith(_RECORDER))
    return list(islice(frames, _MOST_FRAMES))


def _place(code: CodeType, line: int | None) -> list[Any]:
    # A frame that another thread runs may have no line at the moment.
    return [code.co_name, absolute(code.co_filename), line or code.co_firstlineno]


def handled(thread: int, is_foreign: Callable[[str], bool]) -> dict[str, Any] | None:
    """What a thread, by its identifier, is handling; None where that is nothing, or no more than an iterator's end."""
    current = sys._current_exceptions().get(thread)
    error: Any = current[1] if isinstance(current, tuple) else current  # a tuple until Python 3.11
    if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
        return None
    if (trace := error.__traceback__) is None:
        return None
    holder = trace.tb_frame  # an exception comes no further than to who handles it
    return {
        "type": type(error).__name__,
        "message": _message(error)[:_LONGEST],
        "frames": _own(trace, is_foreign)[-_MOST_LINES:],
        "tried": _place(holder.f_code, trace.tb_lineno),
        "holder": _place(holder.f_code, holder.f_lineno),
    }


def _own(trace: TracebackType | None, is_foreign: Callable[[str], bool]) -> list[list[Any]]:
    """The script's own lines through which it came, outermost first."""
    lines = ((frame.f_code, line) for frame, line in walk_tb(trace))
    return [_place(code, line) for code, line in lines if not is_foreign(code.co_filename)]


def _message(error: Exception) -> str:
    """Its first line. A ``__str__`` of the script's own is not for another thread to run."""
    if isinstance(type(error).__str__, FunctionType):
        text = ", ".join(argument for argument in error.args if type(argument) is str)
    else:
        text = str(error)
    return text.strip().partition("\n")[0]


class Asked:
    """Looks for requests."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._file = os.path.join(session.folder, REQUEST)
        self._seen = self._changed()

    def look(self) -> None:
        """Answer a request that is new."""
        changed = self._changed()
        if changed != self._seen:
            self._seen = changed
            self._answer()

    def _changed(self) -> int:
        try:
            return os.stat(self._file).st_mtime_ns
        except OSError:
            return 0

    def _answer(self) -> None:
        file = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)  # not open(), which is watched
        asked = os.read(file, 100).decode(errors="replace")
        os.close(file)
        name = self._session.writer.name
        if (held := flight(self._session.torch)) is not None:
            _write(os.path.join(self._session.folder, f"{name}.flight"), held)
        answer = {"asked": asked, "pid": os.getpid(), "rank": self._session.rank, "frames": main_thread()}
        answer["flight"] = held is not None
        _write(os.path.join(self._session.folder, f"{name}.stack.json"), json.dumps(answer).encode())


def main_thread() -> list[list[Any]]:
    """The function, file and line of each of its frames, outermost first."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    lines = [(frame.f_code, line) for frame, line in walk_stack(frame)] if frame else []
    return [[getattr(it, "co_qualname", it.co_name), it.co_filename, line] for it, line in reversed(lines)]


def flight(torch: Any) -> bytes | None:
    """What torch's flight recorder holds, pickled; None where this torch has none."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    dump = next((function for name in _DUMPS if (function := getattr(c10d, name, None))), None)
    return bytes(dump()) if dump is not None else None


def _write(path: str, data: bytes) -> None:
    """Complete or absent."""
    file = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.close(file)
    os.replace(f"{path}.part", path)
