"""Keeps what is about to be changed, where a process has no private view of the file system, or one of a part of it.

By an audit hook, which hears of a change before it happens. What stands at a path is kept once for all processes of the
job, and a journal tells it; :mod:`ddpdoctor.job.journal` plays it back from its end to its beginning. A file is kept by
a further name (a hard link), which costs nothing however large it is. One that is then written to gets content of its
own first, a copy or, where it is emptied anyway, none.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable
from hashlib import sha1
from typing import Any
from urllib.parse import unquote, urlsplit

FOLDER = "DDPDOCTOR_ORIGINALS"
"""The environment variable that names the folder of the journal; without it nothing is kept."""
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NOT_FILES = re.compile("/(dev/(?!shm/)|proc/|sys/)")
_REAL = ("/dev/shm/", "/run/")
"""Where files of all are the real ones in a private view, too."""
_WAIT = 30.0
"""Seconds that another process may take to keep a file."""
_FICLONE = 0x40049409
_BESIDE = ".ddpdoctor-"
"""How the folder begins that keeps files of a file system other than the journal's."""


class Originals:
    """What is kept by this process, and by others that write to the same folder, that of the journal. ``ours`` are the
    folders that are not the script's: what changes there is nobody's loss; ``covered`` are those that a private view
    covers for this process."""

    def __init__(self, folder: str, ours: Iterable[str], covered: Iterable[str] = ()) -> None:
        self._folder, self._ours, self._covered = folder, _below(ours), _below(covered)
        self._uncovered = (*_REAL, *_below(os.environ.get("DDPDOCTOR_UNCOVERED", "").split(os.pathsep)))
        self._device, self._host = os.stat(folder).st_dev, os.uname().nodename
        self._began = os.stat(os.path.dirname(folder)).st_ctime_ns
        self._known: set[str] = set()
        self._timed: set[str] = set()
        self._stores: dict[int, str] = {}
        self._busy = threading.local()

    # -- what is about to happen --------------------------------------------------------------------------

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Something is about to happen. No exception leaves this: it would forbid the script what it does."""
        if event not in _EVENTS or getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            _EVENTS[event](self, *args)
        except Exception:  # noqa: BLE001 - a file that cannot be kept is one that the report does not promise
            with contextlib.suppress(OSError):
                self.note({"kind": "missed", "path": str(args[0])})
        finally:
            self._busy.now = False

    def opened(self, path: Any, _: Any, flags: Any) -> None:
        """A file is opened."""
        if not isinstance(flags, int) or isinstance(path, int) or not flags & _CHANGES:
            return
        if not (flags & os.O_EXCL and os.path.lexists(path)):  # that fails
            only_added = flags & os.O_APPEND and not flags & (os.O_TRUNC | os.O_RDWR)
            self.written(path, emptied=bool(flags & os.O_TRUNC), whole=bool(only_added))

    def written(self, path: Any, *, emptied: bool = False, whole: bool = False) -> None:
        """A file gets another content: it is emptied first, or kept whole, with at most something added."""
        if isinstance(path, int):
            return  # which was opened for that
        place = os.path.realpath(os.fsdecode(path))
        self._keep(place)
        if whole or place not in self._known:
            return
        with contextlib.suppress(FileNotFoundError):
            there = os.lstat(place)
            if stat.S_ISREG(there.st_mode) and os.path.exists(self._mark(there)):
                self._part(place, there, emptied=emptied)

    def described(self, path: Any, *more: Any) -> None:
        """A file, a folder or a symbolic link itself gets another mode, owner or time."""
        name = f"/proc/self/fd/{path}" if isinstance(path, int) else self._real_name(path, more[-1])
        for place in {name, os.path.realpath(name)}:
            self._keep(place)

    def truncated(self, path: Any, *_: Any) -> None:
        """A file is cut: by its path, or open, as a file that is only added to may be."""
        if not isinstance(path, int):
            self.written(path)
            return
        there = os.fstat(path)
        kept = self._kept_at(there)
        if kept and os.path.samestat(there, os.stat(kept)):  # under another name only, and open already
            draft = f"{kept}.{os.getpid()}-{threading.get_ident()}"
            _copy(kept, draft)
            os.replace(draft, kept)

    def named(self, path: Any, folder: Any = -1, *_: Any) -> None:
        """A name begins or ceases to mean something."""
        self._keep(self._real_name(path, folder))

    @staticmethod
    def _real_name(path: Any, folder: Any) -> str:
        """The place of a name itself, which a symbolic link has, too."""
        name = os.fsdecode(path)
        if isinstance(folder, int) and folder >= 0 and not os.path.isabs(name):
            name = os.path.join(os.path.realpath(f"/proc/self/fd/{folder}"), name)
        parent, last = os.path.split(os.path.abspath(name))
        return os.path.join(os.path.realpath(parent), last)

    def renamed(self, source: Any, target: Any, of_source: int = -1, of_target: int = -1) -> None:
        """A name becomes another one; a folder takes all that is in it along."""
        place = self._real_name(source, of_source)
        if os.path.isdir(place) and not os.path.islink(place) and not self._is_ours(place):
            self.named(target, of_target)
            self._times_of(os.path.dirname(place))
            self.note({"kind": "moved", "path": place, "to": self._real_name(target, of_target)})
        else:
            self.named(source, of_source)
            self.named(target, of_target)

    def linked(self, source: Any, target: Any, of_source: Any = -1, of_target: Any = -1) -> None:
        """A file gets a further name."""
        self._keep(self._real_name(source, of_source), shared=True)
        self.named(target, of_target)

    def made(self, path: Any, _: Any = None, folder: Any = -1) -> None:
        """A folder is made."""
        if not os.path.lexists(self._real_name(path, folder)):
            self.named(path, folder)

    def bound(self, _: Any, address: Any) -> None:
        """A socket gets an address, which may be a name among files."""
        if isinstance(address, (str, bytes)) and os.fsdecode(address)[:1] not in ("", "\0"):
            self.named(address)

    def database(self, path: Any, *_: Any) -> None:
        """A database is opened, with the files that sqlite writes beside it."""
        name = os.fsdecode(path)
        if name.startswith("file:"):
            name = unquote(urlsplit(name).path)
        if name and name != ":memory:":
            for end in ("", "-journal", "-wal", "-shm"):
                self.written(name + end)

    # -- keeping -----------------------------------------------------------------------------------------

    def _is_ours(self, place: str) -> bool:
        is_covered = place.startswith(self._covered) and not place.startswith(self._uncovered)
        return is_covered or bool(_NOT_FILES.match(place)) or place.startswith(self._ours)

    def _keep(self, place: str, *, shared: bool = False) -> None:
        """Keep what stands at a path, once for all processes, unless it is ours; return when that is done. It is shared
        where it gets a further name, by which its content may change, too."""
        if place in self._known or self._is_ours(place):
            return
        self._known.add(place)
        entry = os.path.join(self._folder, sha1(os.fsencode(place), usedforsecurity=False).hexdigest())
        try:
            os.close(os.open(f"{entry}.claim", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            deadline = time.monotonic() + _WAIT
            while not os.path.exists(f"{entry}.done") and time.monotonic() < deadline:
                time.sleep(0.001)
            return
        self._times_of(os.path.dirname(place))
        self.note({"path": place, **self._original(place, f"{entry[-40:]}", shared=shared)})
        os.close(os.open(f"{entry}.done", os.O_CREAT | os.O_WRONLY))

    def _original(self, place: str, name: str, *, shared: bool) -> dict[str, Any]:
        try:
            there = os.lstat(place)
        except FileNotFoundError:
            return {"kind": "absent"}
        told = {
            "mode": stat.S_IMODE(there.st_mode),
            "length": there.st_size,
            "owner": (there.st_uid, there.st_gid),
            "times": (there.st_atime_ns, there.st_mtime_ns),
        }
        if stat.S_ISDIR(there.st_mode):
            return {"kind": "folder", **told}
        if there.st_ctime_ns > self._began and not os.path.exists(
            f"{self._mark(there)}s"
        ):  # by a program, or on another host, whose it is to undo
            return {"kind": "changed before", **told}
        if stat.S_ISLNK(there.st_mode):
            return {"kind": "link", "to": os.readlink(place), **told}
        return {**self._content(place, there, name, shared=shared), **told}

    def _content(self, place: str, there: os.stat_result, name: str, *, shared: bool) -> dict[str, Any]:
        """Keep a further name of a file, and its content apart where that may change under other names."""
        if not stat.S_ISREG(there.st_mode):
            return {"kind": "other"}
        kept, entry = os.path.join(self._store(place, there.st_dev), name), {}
        with contextlib.suppress(OSError):
            if os.access(os.path.dirname(place), os.W_OK):
                os.link(place, kept)
                entry = {"kind": "name", "name": kept}
            if entry and there.st_nlink == 1 and not shared:
                with open(self._mark(there), "w", encoding="utf-8", errors="surrogateescape") as mark:
                    mark.write(kept)
                return {"kind": "file", "kept": kept}
        of_names = f"{self._mark(there)}s"
        if not (entry and os.path.exists(of_names)):
            entry |= {"kind": "copy", "kept": f"{kept}.content"}
            _copy(place, entry["kept"])
            with contextlib.suppress(OSError):  # then another name is copied, too
                os.close(os.open(of_names, os.O_CREAT | os.O_WRONLY))
        return entry

    def _times_of(self, folder: str) -> None:
        """Keep the times of a folder in which names change."""
        if folder not in self._timed:
            self._timed.add(folder)
            with contextlib.suppress(OSError):
                there = os.lstat(folder)
                self.note({"kind": "times", "path": folder, "times": (there.st_atime_ns, there.st_mtime_ns)})

    def _mark(self, there: os.stat_result) -> str:
        """The file that tells where a file is kept, whatever its name is."""
        return os.path.join(self._folder, f"{there.st_dev}-{there.st_ino}.mark")

    def _kept_at(self, there: os.stat_result) -> str | None:
        with (
            contextlib.suppress(OSError),
            open(self._mark(there), encoding="utf-8", errors="surrogateescape") as mark,
        ):
            return mark.read() or None
        return None

    def _part(self, place: str, there: os.stat_result, *, emptied: bool) -> None:
        """Give a file that is kept content of its own, before it is written to."""
        beside = f"{_BESIDE}draft-{os.getpid()}-{threading.get_ident()}"  # not longer for a long name
        draft = os.path.join(os.path.dirname(place), beside)
        self.note({"kind": "absent", "path": draft})
        if emptied:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        else:
            _copy(place, draft)
        os.chmod(draft, stat.S_IMODE(there.st_mode))
        os.utime(draft, ns=(there.st_atime_ns, there.st_mtime_ns))
        with contextlib.suppress(OSError):
            os.chown(draft, there.st_uid, there.st_gid)
        os.replace(draft, place)

    def _store(self, place: str, device: int) -> str:
        """A folder of the same file system: the journal's, or one as far above the file as we may write."""
        if device not in self._stores:
            store = self._folder
            if os.stat(self._folder).st_dev != device:
                above = os.path.dirname(place)
                while _is_like(os.path.dirname(above), device):
                    above = os.path.dirname(above)
                store = os.path.join(
                    above, _BESIDE + os.path.basename(os.path.dirname(os.path.dirname(self._folder)))
                )
                self._times_of(above)
                self.note({"kind": "store", "path": store})
                os.makedirs(store, exist_ok=True)  # which is removed last of all
            self._stores[device] = store
        return self._stores[device]

    def note(self, entry: dict[str, Any]) -> None:
        """Add to the journal, which survives whatever comes then."""
        entry["host"] = self._host
        if mount := mount_of(os.path.dirname(entry["path"]), self._device):
            entry["mount"] = mount  # by which another host knows that the file is its own, too
        now = time.monotonic_ns()
        name = os.path.join(self._folder, f"{now}-{os.getpid()}-{threading.get_ident()}")
        with open(f"{name}.part", "w", encoding="utf-8", errors="surrogateescape") as draft:
            json.dump({**entry, "time": now}, draft)
        os.replace(f"{name}.part", f"{name}.json")


def _below(folders: Iterable[str]) -> tuple[str, ...]:
    """How paths below folders begin."""
    return tuple(f"{folder}{os.sep}" for folder in folders if folder)


def mount_of(folder: str, device: int) -> str | None:
    """Where the file system of a folder begins; None where it is not this one."""
    with contextlib.suppress(OSError):
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder) or os.sep
        if os.stat(folder).st_dev == device:
            while folder != os.sep and os.stat(os.path.dirname(folder)).st_dev == device:
                folder = os.path.dirname(folder)
            return folder
    return None


def _is_like(folder: str, device: int) -> bool:
    return folder != os.sep and os.access(folder, os.W_OK) and os.stat(folder).st_dev == device


def _copy(source: str, target: str) -> None:
    """Copy a file's content; where the file system can, without its blocks."""
    import fcntl

    with open(source, "rb") as read, open(target, "wb") as write:
        try:
            fcntl.ioctl(write, _FICLONE, read.fileno())
        except OSError:
            shutil.copyfileobj(read, write, 1 << 20)


_EVENTS: dict[str, Callable[..., None]] = {
    "open": Originals.opened,
    **dict.fromkeys(("os.chmod", "os.chown", "os.utime"), Originals.described),
    "os.link": Originals.linked,
    "os.mkdir": Originals.made,
    "os.remove": Originals.named,
    "os.rename": Originals.renamed,
    "os.rmdir": Originals.named,
    "os.symlink": lambda self, source, target, *_: self.named(target),
    "os.truncate": Originals.truncated,
    "socket.bind": Originals.bound,
    "sqlite3.connect": Originals.database,
}


_NATIVE = (
    ("torch", "serialization._open_zipfile_writer_file", "__init__", 1, "name"),
    ("torch", "jit.RecursiveScriptModule", "save", 1, "f"),
    ("torch", "autograd.profiler.profile", "export_chrome_trace", 1, "path"),
    ("safetensors", "", "serialize_file", 1, "filename"),
)
"""What writes a whole file in native code: a module, an object in it, its function, and where that has the path."""


def _tell_of_native(
    originals: Originals, module: str, place: str, name: str, position: int, keyword: str
) -> None:
    """Have such a function tell of what it is about to write."""
    from .patch import around  # here, since the guard loads this file by its path

    owner: Any = functools.reduce(getattr, filter(None, place.split(".")), sys.modules[module])

    def write(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        path = args[position] if len(args) > position else kwargs.get(keyword)
        originals.hear("open", (path, "w", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        return original(*args, **kwargs)

    setattr(owner, name, around(write)(getattr(owner, name)))


def _hear_of_truncate(originals: Originals) -> None:
    """Have files tell before they are cut: of ``file.truncate()`` Python tells no audit hook. All files have this
    method by their C type, whose dictionary is not written to by other means."""
    import ctypes

    from .patch import around

    def truncate(original: Callable[..., int], file: io.FileIO, *size: int | None) -> int:
        originals.hear("os.truncate", (file.fileno(), *size))
        return original(file, *size)

    (methods,) = gc.get_referents(io.FileIO.__dict__)
    methods["truncate"] = around(truncate)(io.FileIO.truncate)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(io.FileIO))


def keep_originals(when_imported: Callable[[str, Callable[[], None]], None], covered: list[str]) -> None:
    """Begin, where the environment asks for it, with the folders that a private view covers for this process."""
    if (folder := os.environ.get(FOLDER)) and os.path.isdir(folder):
        run, caches = os.path.dirname(os.path.dirname(folder)), os.environ.get(f"{FOLDER}_NOT", "")
        originals = Originals(folder, (run, *caches.split(os.pathsep)), covered)
        if os.environ.get("DDPDOCTOR_COVERED") and not covered:
            originals.note({"kind": "outside", "path": folder})
        _hear_of_truncate(originals)
        for row in _NATIVE:
            when_imported(row[0], functools.partial(_tell_of_native, originals, *row))
        sys.addaudithook(originals.hear)
