"""Starts a command in a private view of the file system: what it writes goes into layers, and not into its files.

    python -I -S private_view.py OPTIONS COMMAND...

OPTIONS is JSON: ``layers``, a folder; ``visible``, paths that stay the real ones; ``script``, the file that is run, or
null; ``without``, why there is to be no view, or null.

A mount namespace, of a user namespace where this process is not root, in which overlayfs lies over every file system
that can be written to. Whatever the command and its children write, in any language, goes into layers; without them
all is as it was, whoever is killed. Caches of libraries, /dev, /proc, /sys, /run and the sockets of running servers are
the real ones. ``view.json`` beside the layers tells what lies where; where the system allows no view it tells why,
nothing is mounted, and the command is started all the same.

Standard library only, and run by path: it becomes the command, which keeps its process id.
"""

import contextlib
import ctypes
import getpass
import itertools
import json
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

VIEW = "view.json"
ORIGINALS = "layers/originals"
"""The folder, inside a job's, of the journal by which files are kept that the view does not cover."""
INVENTORY = "inventory.json"
"""The file, beside the journal's folder, that tells what stood in the working directory."""
_MOST_NOTED = 20_000
_OURS = "ddpdoctor-"
NO_VIEW = "DDPDOCTOR_NO_VIEW"
"""The environment variable that forbids the view, for tests of what is done without one."""
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_MOVE, _MS_REC, _MS_SLAVE = 0x1000, 0x2000, 0x4000, 0x80000
_REAL = (Path("/dev"), Path("/proc"), Path("/run"), Path("/sys"), Path("/var/run"))
"""Devices, the kernel's own files, and places where servers listen."""
_OF_THE_KERNEL = {
    *("autofs", "bpf", "binfmt_misc", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs"),
    *("efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs"),
    *("selinuxfs", "squashfs", "sysfs", "tracefs"),
}
"""File systems that keep no files of a user's."""
_OF_THE_SYSTEM = {
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr", "var"),
}
"""Folders below / into which only root writes, which covers / as a whole."""
_MOST_SOCKETS = 500
_MOST_COVERED = 64
"""Folders of a user's that have an overlay each."""
_DEPTH, _MOST_FOLDERS = 4, 2000
"""How far below a mount a user's own folders are looked for, and among how many."""
_OF_ROOT = "redirect_dir=on,metacopy=on,xino=auto,index=on,volatile"
"""Options of an overlay: folders can be renamed, a change of mode copies no content, names of a file stay together,
file numbers stay, and nothing waits for a disk on which nothing has to last."""
_NO_SETGROUPS = "deny"


class NoView(Exception):
    """The system allows none; the text says why, in a clause."""


class _Mount(NamedTuple):
    """A mount that can be seen."""

    point: Path
    kind: str
    writable: bool

    @property
    def is_covered(self) -> bool:
        """Whether it may hold files of the user's that can be changed."""
        apart = any(self.point.is_relative_to(place) for place in _REAL)
        return self.writable and not apart and self.kind not in _OF_THE_KERNEL and self.point.is_dir()


_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: Path, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """mount(2). Raises NoView where the kernel refuses it."""
    words = [word if word is None else word.encode() for word in (source, str(target), kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None):
        raise NoView(f"{kind or 'a bind mount'} at {target}: {os.strerror(ctypes.get_errno())}")


def _unshare_as_user() -> None:
    """Enter a mount namespace, and one of users in which this one may mount. Raises NoView where that is forbidden."""
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWNS | _CLONE_NEWUSER):
        raise NoView(f"unshare: {os.strerror(ctypes.get_errno())}")
    try:
        Path("/proc/self/setgroups").write_text(_NO_SETGROUPS, encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
    except OSError as error:
        raise NoView(f"the map of users: {error.strerror}") from None


def mounts(text: str) -> list[_Mount]:
    """Those in ``/proc/self/mountinfo`` that are not hidden below another, outer ones first. It is read as Latin-1: a
    path is bytes, with a few of them as octal numbers."""
    seen: dict[Path, _Mount] = {}
    for line in text.splitlines():
        fields, _, of_system = line.partition(" - ")
        point, options = fields.split()[4:6]
        kind, *_, options_of_system = of_system.split()
        path = Path(os.fsdecode(point.encode("latin-1").decode("unicode_escape").encode("latin-1")))
        writable = "rw" in options.split(",") and "rw" in options_of_system.split(",")
        seen[path] = _Mount(path, kind, writable)
    return sorted(seen.values(), key=lambda mount: len(mount.point.parts))


def caches() -> Iterator[Path]:
    """Where libraries keep what they downloaded or compiled, which stays there."""
    home = Path(os.environ.get("HOME") or "/nonexistent")
    named = (
        *("XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "PIP_CACHE_DIR"),
        *("TRANSFORMERS_CACHE", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"),
        *("CUDA_MPS_PIPE_DIRECTORY", "UV_CACHE_DIR"),
    )
    usual = (home / ".cache", home / ".triton", home / ".nv")
    temporary = Path(os.environ.get("TMPDIR") or "/tmp")
    shared = (temporary / "ray", temporary / "nvidia-mps", temporary / f"torchinductor_{user()}")
    for path in (*(Path(os.environ[name]) for name in named if os.environ.get(name)), *usual, *shared):
        if path.is_absolute() and path.is_dir():
            yield path.resolve()


def user() -> str:
    """The name of this user; empty where there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return ""


def _sockets() -> Iterator[Path]:
    """Where servers listen: through an overlay a socket is another one, at which nobody does."""
    sockets = Path("/proc/net/unix")
    with contextlib.suppress(OSError), sockets.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            path = Path(line.rstrip("\n").split(" ", 7)[-1].partition(" ")[2])
            if path.is_absolute():
                yield path


class _View:
    """The view while it is put together, below ``staging``."""

    def __init__(self, layers: Path) -> None:
        self.staging, self.layers = layers / "staging", layers
        self._names = itertools.count()
        self.covered: dict[str, str] = {}
        """The folders that have an overlay, and the name of its layer."""

    def at(self, path: Path) -> Path:
        """Where a path of the system is in it."""
        return self.staging / path.relative_to("/")

    def assemble(
        self, mounts: Sequence[_Mount], owned: Sequence[Path] | None, visible: Iterable[Path]
    ) -> None:
        """Put it together from the mounts of the system; the paths that are visible are the real ones. In a user
        namespace the owned folders are covered; None where all can be. Raises NoView where the kernel refuses a
        mount."""
        self.staging.mkdir(parents=True)
        _mount("none", Path("/"), flags=_MS_REC | _MS_SLAVE)
        if owned is None:
            self._cover_mounts(mounts)
        else:
            _mount("/", self.staging, flags=_MS_BIND | _MS_REC)
            for folder in owned:
                with contextlib.suppress(FileNotFoundError):  # a temporary one that is gone
                    self._cover(folder)
        for path in sorted({*visible}, key=lambda path: len(path.parts)):
            if self._is_covered(path):
                self._pass(path)
        for path in itertools.islice(filter(self._is_covered, _sockets()), _MOST_SOCKETS):
            with contextlib.suppress(NoView, OSError):
                self._pass(path)

    def _cover_mounts(self, mounts: Sequence[_Mount]) -> None:
        passed: list[Path] = []
        for mount in mounts:
            if any(mount.point.is_relative_to(place) for place in passed):
                continue
            if mount.is_covered or mount.point == Path("/"):
                self._cover(mount.point)
            else:
                self._pass(mount.point)
                passed.append(mount.point)

    def _is_covered(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self.covered)

    def _pass(self, path: Path) -> None:
        if self.at(path).exists():
            _mount(str(path), self.at(path), flags=_MS_BIND | _MS_REC)

    def _cover(self, folder: Path) -> None:
        name = str(next(self._names))
        upper, work = self.layers / "upper" / name, self.layers / "work" / name
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        _like(folder, upper)
        layers = f"lowerdir={_escaped(folder)},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        # The others are for user namespaces; a folder that was there before cannot be renamed in them.
        for more in (_OF_ROOT, "userxattr,volatile", "userxattr"):
            try:
                _mount("overlay", self.at(folder), "overlay", options=f"{layers},{more}")
                break
            except NoView as refused:
                why = refused
        else:
            raise why
        self.covered[str(folder)] = name

    def enter(self, working: str) -> None:
        """Make it this process's file system."""
        os.chdir(self.staging)
        _mount(".", Path("/"), flags=_MS_MOVE)
        os.chroot(".")
        os.chdir(working)


def status(path: Path) -> os.stat_result | None:
    """What stands at a path itself; None where nothing does."""
    with contextlib.suppress(OSError):
        return path.lstat()
    return None


def _is_foreign(path: Path) -> bool:
    """Whether a user namespace does not know whose it is."""
    there = status(path)
    return there is not None and (there.st_uid, there.st_gid) != (os.getuid(), os.getgid())


def _escaped(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _like(folder: Path, upper: Path) -> None:
    """Have a layer's root look as the folder that it lies over."""
    there = folder.stat()
    with contextlib.suppress(OSError):
        os.chown(upper, there.st_uid, there.st_gid)
    upper.chmod(stat.S_IMODE(there.st_mode))
    os.utime(upper, ns=(there.st_atime_ns, there.st_mtime_ns))


class _Owned:
    """The folders that a user without further rights can cover.

    What a user namespace does not know cannot be copied into a layer: a folder or file of another user's or group's.
    And what a mount hides may not be uncovered, so nothing may be mounted below.
    """

    def __init__(self, mounts: Sequence[_Mount]) -> None:
        self._points = {mount.point for mount in mounts}
        self._looked = 0
        self.folders: list[Path] = []
        self.uncovered: list[Path] = []
        """The outermost of those that can be written to all the same."""
        for mount in mounts:
            if mount.is_covered:
                self._look(mount.point, _DEPTH)

    def _look(self, folder: Path, depth: int) -> None:
        """Cover a folder, or what is in it and the user's."""
        self._looked += 1
        there = status(folder)
        if there is None:  # a temporary one that is gone
            return
        is_own = (there.st_uid, there.st_gid) == (os.getuid(), os.getgid())
        is_shared = bool(there.st_mode & stat.S_ISVTX) and os.access(folder, os.W_OK)
        if (is_own or is_shared) and not any(folder in point.parents for point in self._points):
            self.folders.append(folder)
            return
        if os.access(folder, os.W_OK) and not {*folder.parents} & {*self.uncovered}:
            self.uncovered.append(folder)
        if depth and self._looked < _MOST_FOLDERS:
            with contextlib.suppress(OSError):
                self._look_into(folder, depth)

    def _look_into(self, folder: Path, depth: int) -> None:
        for child in sorted(folder.iterdir()):
            of_system = folder == Path("/") and child.name in _OF_THE_SYSTEM - {"var"}
            if child not in self._points and not of_system and child.is_dir() and not child.is_symlink():
                self._look(child, depth - 1)

    def chosen(self, first: Iterable[Path]) -> list[Path]:
        """As many of them as can be covered, those that hold these paths first."""
        places = [*first]
        ordered = sorted(self.folders, key=lambda folder: not any(it.is_relative_to(folder) for it in places))
        self.uncovered += ordered[_MOST_COVERED:]
        return ordered[:_MOST_COVERED]

    def require(self, path: Path) -> None:
        """Make sure that what is written beside a path can be undone. Raises NoView where it cannot."""
        covered = next((folder for folder in self.folders if path.is_relative_to(folder)), None)
        if covered is None:
            raise NoView(f"{path} cannot have an overlay of this user's")
        between = [path, *path.parents][: len(path.parts) - len(covered.parts)]
        files = [Path(entry.path) for entry in os.scandir(path) if not entry.is_dir(follow_symlinks=False)]
        for place in (*between, *files):
            if _is_foreign(place) and os.access(place, os.W_OK):
                raise NoView(f"{place} is of another user or group")

    def foreign(self, chosen: Sequence[Path], places: Sequence[Path]) -> Iterator[Path]:
        """Folders below the chosen ones in which nothing can be written there, among the nearest to these places."""
        waiting, seen = deque(dict.fromkeys((*places, *chosen))), 0
        while waiting and seen < _MOST_NOTED:
            folder = waiting.popleft()
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    seen += 1
                    path, is_folder = Path(entry.path), entry.is_dir(follow_symlinks=False)
                    if not _is_foreign(path):
                        waiting.extend([path] if is_folder and path not in places else [])
                    elif os.access(path, os.X_OK if is_folder else os.W_OK) and not path.is_symlink():
                        found = path if is_folder else folder
                        if not any(place.is_relative_to(found) for place in (*places, *chosen)):
                            yield found


def enter(layers: Path, visible: Iterable[Path], script: Path | None, forbidden: str | None) -> None:
    """Enter the view and note what lies where; where there can be none, note why and change nothing."""
    # What Python code is about to change where there is no view, the recorder keeps.
    originals = layers / Path(ORIGINALS).name
    originals.mkdir()
    os.environ["DDPDOCTOR_ORIGINALS"] = str(originals)
    os.environ["DDPDOCTOR_ORIGINALS_NOT"] = os.pathsep.join(map(str, caches()))
    try:
        if forbidden:
            raise NoView(forbidden)
        _enter(layers, [*visible, *caches()], script)
    except (NoView, OSError, ValueError) as why:
        _note(layers, {"why_not": str(why)})
        (layers / INVENTORY).write_text(json.dumps(inventory(Path.cwd())), encoding="utf-8")


def inventory(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Size, mode and time of everything in a folder but what is ours or Python's; empty of one with very much in it."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((_OURS, "__pycache__"))]
        for name in (*folders, *files):
            path = os.path.join(place, name)  # noqa: PTH118 - of a hundred thousand
            with contextlib.suppress(OSError):
                there = os.lstat(path)
                time = 0 if stat.S_ISDIR(there.st_mode) else there.st_mtime_ns
                size = 0 if stat.S_ISDIR(there.st_mode) else there.st_size
                found[path] = (size, there.st_mode, time)
        if len(found) > _MOST_NOTED:
            return {}
    return found


def _enter(layers: Path, visible: Sequence[Path], script: Path | None) -> None:
    by_user = _libc.unshare(_CLONE_NEWNS) != 0
    if by_user:
        _try(layers / "attempt", visible, script)
        os.environ["DDPDOCTOR_VIEW_OF_USER"] = "1"
    _become(layers, visible, script, by_user=by_user)


def _become(layers: Path, visible: Sequence[Path], script: Path | None, *, by_user: bool) -> None:
    working = os.getcwd()  # noqa: PTH109 - as the command sees it
    seen, folders = mounts(Path("/proc/self/mountinfo").read_text(encoding="latin-1")), None
    uncovered: list[Path] = []
    if by_user:
        owned = _Owned(seen)
        places = {Path(working).resolve(), *([script.resolve().parent] if script else [])}
        for place in places:
            owned.require(place)
        folders = owned.chosen([*places, Path(os.environ.get("HOME") or "/")])
        foreign = {*itertools.islice(owned.foreign(folders, [*places]), _MOST_SOCKETS)}
        visible = [*visible, *foreign]
        uncovered = [*owned.uncovered, *(folder for folder in foreign if os.access(folder, os.W_OK))]
        _unshare_as_user()
    points = {mount.point for mount in seen}
    real = {place.resolve() for place in _REAL} - points  # as /run in containers
    view = _View(layers)
    view.assemble(seen, folders, [*visible, *real])
    _note(layers, {"covered": view.covered, "uncovered": [*map(str, uncovered)]})
    os.environ["DDPDOCTOR_COVERED"] = os.pathsep.join(view.covered)
    os.environ["DDPDOCTOR_UNCOVERED"] = os.pathsep.join(map(str, uncovered))
    view.enter(working)


def _try(layers: Path, visible: Sequence[Path], script: Path | None) -> None:
    """The same in a child: none can leave a user namespace in which it may not mount. Raises NoView where it failed."""
    layers.mkdir()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _become(layers, visible, script, by_user=True)
            status = 0
        except (NoView, OSError, ValueError) as why:
            _note(layers, {"why_not": str(why)})
        finally:
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise NoView(json.loads((layers / VIEW).read_text(encoding="utf-8"))["why_not"])


def _note(layers: Path, value: object) -> None:
    (layers / VIEW).write_text(json.dumps(value), encoding="utf-8")


def main(options: str, *command: str) -> int:
    """Enter the view, and become the command."""
    asked: dict[str, Any] = json.loads(options)
    forbidden = f"{NO_VIEW} is set" if os.environ.get(NO_VIEW) else asked["without"]
    script = Path(asked["script"]) if asked["script"] else None
    enter(Path(asked["layers"]), [Path(path) for path in asked["visible"]], script, forbidden)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} did not start: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
