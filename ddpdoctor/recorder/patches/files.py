"""Files and folders that the script itself makes, empties, moves or removes, downloads and unpacking included.

By an audit hook, the one place that sees all of Python's ways to a file. It is called for much more than files, each
``id`` of a tensor among them, so its first comparison is all that the rest costs; it cannot be taken back, only made to
do nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from ..events.files import FileEvent, FileRead, PathAsked
from ..patch import Args, Kwargs, after_call, caller, report
from ..session import Session
from ..where import Where
from .checkpoints import Checkpoints

_EVENTS = {
    "open": "write",
    "os.mkdir": "mkdir",
    "os.remove": "remove",
    "os.rmdir": "remove",
    "shutil.rmtree": "remove",
    "os.rename": "rename",
    "shutil.unpack_archive": "extract",
    "fcntl.flock": "lock",
    "fcntl.lockf": "lock",
}
_ACT_FOR_THE_SCRIPT = (
    *("torchvision.datasets", "torchaudio.datasets", "torch.hub", "sklearn.datasets", "gdown", "wget"),
)
"""Modules that fetch data where they are told to, without a lock. Others look after their own files."""
_FOR_THEIR_CALLER = (
    *("numpy", "PIL", "pandas", "matplotlib", "scipy", "imageio", "soundfile"),
    *("torchvision.utils", "torch.utils._contextlib"),
)
"""Packages that write the file that their caller names, and what calls their functions without gradients."""
_LOGGING = "logging"
"""Adds lines to files that several ranks may keep open; a file that it empties is the script's, like any other."""
_NOT_FOR_IT = ("importlib", "matplotlib.font_manager", "matplotlib.texmanager")
_RECORDER = __name__.partition(".")[0]
"""Stands between the script and what it calls, and opens no file but records."""
_ORIGINALS = f"{_RECORDER}.originals"
"""Keeps what the script is about to change."""
_LOCKS = ("fcntl.flock", "fcntl.lockf")
_NOT_FILES = ("/dev/", "/proc/", "/sys/")
_MOST = 2000
_MOST_OF_A_LINE = 20
_MOST_READS, _MOST_LINES = 5, 200
"""Reads of a line that are told, and lines: nothing is left out that is written because much is read."""
_MOST_ASKED = 200
_PYTHON = tuple({os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix)})
"""Where packages lie, which read files of their own."""


def install(session: Session) -> None:
    watch = _Watch(session)

    def hear(event: str, args: tuple[Any, ...]) -> None:
        if event in _EVENTS:
            watch.hear(event, args)

    asked = after_call(watch.look_asked)
    for owner, name in ((os.path, "exists"), (os.path, "isdir"), (Path, "exists"), (Path, "is_dir")):
        session.patch(owner, name, asked)
    # A bound method would cost four times as much.
    sys.addaudithook(hear)
    session.on_undo(watch.stop)


class _Watch:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.checkpoints = Checkpoints.of(session)
        self.records = os.path.realpath(session.folder) + os.sep
        self.counts: Counter[tuple[Where | None, str]] = Counter()
        self.busy = False
        self.stopped = False
        self.reads: Counter[Where] = Counter()
        self.asked: set[tuple[Where | None, str]] = set()

    def stop(self) -> None:
        self.stopped = True

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        if self.stopped or self.busy:
            return
        self.busy = True
        try:
            if (frame := sys._getframe(1).f_back) is None or frame.f_globals.get("__name__") != _ORIGINALS:
                self._look(event, args, frame)
        except Exception:  # noqa: BLE001 - an exception here would forbid the script what it does
            report("files")
        finally:
            self.busy = False

    def _look(self, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
        if frame is None or self.checkpoints.saving or sum(self.counts.values()) >= _MOST:
            return
        if event in _LOCKS:
            self._tell_once("lock", _locked(event, args))
            return
        if event == "open" and not _changes(*args[:3]):
            self._tell_read(event, args, frame)
            return
        if event == "os.mkdir" and frame.f_locals.get("exist_ok"):
            return  # a folder that may be there already harms nobody
        if event in ("os.remove", "os.rmdir") and frame.f_globals.get("__name__") == "shutil":
            return  # a step of rmtree, which tells of itself
        path = _place(event, args)
        if event == "open" and _is_own(*args[:3]):
            # Only one process can make it: a lock, or a temporary file.
            self._tell_once("lock", path if "lock" in os.path.basename(path) else "")
            return
        emptied = event == "open" and _empties(*args[1:3])
        not_for_it = _NOT_FOR_IT if emptied else (_LOGGING, *_NOT_FOR_IT)
        if (
            path
            and not path.startswith((*_NOT_FILES, self.records))
            and self._is_the_scripts(frame, not_for_it)
        ):
            self._tell(_EVENTS[event], path, emptied=emptied)

    def _is_the_scripts(self, frame: FrameType | None, not_for_it: tuple[str, ...]) -> bool:
        """Whether the script's own code asks for it, itself or through what opens files for its caller; ``not_for_it``
        is how the modules begin that open files of their own."""
        while frame is not None:
            module = str(frame.f_globals.get("__name__"))
            if module.startswith(not_for_it):
                return False
            if module == "__main__" or not _asks_for_another(module):
                is_scripts = not self.session.sites.is_foreign(frame.f_code.co_filename)
                return is_scripts or module.startswith(_ACT_FOR_THE_SCRIPT)
            frame = frame.f_back
        return False

    def _tell_once(self, action: str, path: str) -> None:
        """Tell of a path the first time; a lock is taken again and again, by packages on the script's behalf too."""
        if path and not self.counts[None, path]:
            self.counts[None, path] += 1
            self._write(FileEvent(action, path, time.monotonic(), self.session.here()))

    def _tell(self, action: str, path: str, *, emptied: bool = False) -> None:
        at = self.session.here()
        self.counts[at, action] += 1
        if self.counts[at, action] <= _MOST_OF_A_LINE:
            background = threading.current_thread() is not threading.main_thread()
            self._write(FileEvent(action, path, time.monotonic(), at, background, emptied))

    def _write(self, event: FileEvent | PathAsked) -> None:
        """Into the record; at once where a DataLoader worker may be ended before it is full."""
        self.session.event(event, now=self.session.in_worker)

    def _tell_read(self, event: str, args: tuple[Any, ...], frame: FrameType) -> None:
        if self.session.in_worker or str(frame.f_globals.get("__name__")).startswith(("torch.", "importlib")):
            return
        at = self.session.here()
        if at is None or self.reads[at] >= _MOST_READS or len(self.reads) > _MOST_LINES:
            return
        if (path := _place(event, args)) and not path.startswith((*_NOT_FILES, *_PYTHON, self.records)):
            self.reads[at] += 1
            self.session.event(FileRead(path, time.monotonic(), at))

    def look_asked(self, answer: bool, args: Args, kwargs: Kwargs) -> None:
        if self.stopped or self.busy or len(self.asked) >= _MOST_ASKED:
            return
        if self.session.sites.is_foreign(caller().f_code.co_filename):
            return  # the standard library, on the way to something that tells of itself
        value = args[0] if args else next(iter(kwargs.values()))
        path = os.path.realpath(os.fsdecode(value)) if isinstance(value, str | bytes | os.PathLike) else ""
        at = self.session.here()
        if path and (at, path) not in self.asked:
            self.asked.add((at, path))
            self._write(PathAsked(path, time.monotonic(), at, bool(answer)))


def _asks_for_another(module: str) -> bool:
    """Whether it opens files that whoever calls it has named."""
    top = module.partition(".")[0]
    return (
        top == _RECORDER
        or top in sys.stdlib_module_names
        or any(module == package or module.startswith(f"{package}.") for package in _FOR_THEIR_CALLER)
    )


def _changes(path: Any, mode: Any, flags: Any) -> bool:
    """Whether opening creates or empties the file."""
    if isinstance(path, int):
        return False
    if isinstance(mode, str):
        return "w" in mode or "x" in mode or ("a" in mode and not os.path.exists(path))
    return bool(flags & (os.O_CREAT | os.O_TRUNC))


def _empties(mode: Any, flags: Any) -> bool:
    """Whether opening takes away what is in the file."""
    return "w" in mode if isinstance(mode, str) else bool(flags & os.O_TRUNC)


def _is_own(path: Any, mode: Any, flags: Any) -> bool:
    """Whether opening fails where the file is there already."""
    return not isinstance(path, int) and ("x" in mode if isinstance(mode, str) else bool(flags & os.O_EXCL))


def _locked(event: str, args: tuple[Any, ...]) -> str:
    """The file that is locked; empty where a lock is given back."""
    import fcntl

    number, operation = args[0], args[1]
    if operation & fcntl.LOCK_UN or not isinstance(number, int):
        return ""
    return os.path.realpath(f"/proc/self/fd/{number}")


def _place(event: str, args: tuple[Any, ...]) -> str:
    """The path that is changed, absolute."""
    value = args[1] if event in ("os.rename", "shutil.unpack_archive") else args[0]
    if value is None:
        value = os.getcwd()
    return os.path.realpath(os.fsdecode(value)) if isinstance(value, str | bytes | os.PathLike) else ""
