"""Answers a request from outside: where the main thread is, and what the flight recorder holds.

Whoever wants to know writes a file; the background thread sees it between two flushes. So a process answers whose
main thread is blocked in C++, and one that another process may not attach to.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import Session

REQUEST = "asked"
"""The file in the folder of records whose content, any text without meaning, is repeated in the answer."""
_DUMPS = ("_dump_fr_trace", "_dump_nccl_trace")
"""How torch's function is called: since 2.8, and before."""


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
        held = flight(self._session.torch)
        if held is not None:
            _write(os.path.join(self._session.folder, f"{name}.flight"), held)
        answer = {
            "asked": asked,
            "pid": os.getpid(),
            "rank": self._session.rank,
            "frames": main_thread(),
            "flight": held is not None,
        }
        _write(os.path.join(self._session.folder, f"{name}.stack.json"), json.dumps(answer).encode())


def main_thread() -> list[list[Any]]:
    """The function, file and line of each of its frames, outermost first."""
    threading = sys.modules["threading"]  # torch has imported it
    frame: Any = sys._current_frames().get(threading.main_thread().ident)
    frames = []
    while frame is not None:
        code = frame.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return frames[::-1]


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
