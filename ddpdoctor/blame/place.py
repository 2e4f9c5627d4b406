"""In which call a process stands: what it waits for, and on which line of the script. Read from its stack."""

import linecache
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ddpdoctor.blame.frames import Frame, function, of_script, where_of
from ddpdoctor.blame.hang_snapshot import Doing, SampledProcess
from ddpdoctor.model import Where
from ddpdoctor.recorder.operations import OPERATIONS, Kind


class PlaceKind(str, Enum):
    """What a process stands in."""

    COLLECTIVE = "collective"
    PAIR = "pair"
    """An operation of two ranks."""
    BACKWARD = "backward"
    FORWARD = "forward"
    """Of a wrapped model, which broadcasts its buffers first."""
    WRAP = "wrap"
    JOIN = "join"
    GROUP = "group"
    """new_group, which every rank of the job has to call."""
    DESTROY = "destroy"
    LOADER = "loader"
    """The rank waits for a worker of its DataLoader."""
    LOCK = "lock"
    CHILD = "child"
    READ = "read"
    """Or a write, a connection: the other end of a pipe or socket is to do something."""
    OPEN = "open"
    """The opening of a file, which a named pipe and a file system that does not answer keep waiting."""
    INPUT = "input"
    STORE = "store"
    """A key of the ranks' store, which another rank sets."""
    SLEEP = "sleep"
    ELSEWHERE = "elsewhere"


_PEERS = (
    *(PlaceKind.COLLECTIVE, PlaceKind.PAIR, PlaceKind.BACKWARD, PlaceKind.FORWARD),
    *(PlaceKind.WRAP, PlaceKind.JOIN, PlaceKind.GROUP, PlaceKind.DESTROY),
)
_SENDING = ("send", "isend", "gather", "reduce")
_BLOCKED = (
    PlaceKind.LOADER,
    PlaceKind.LOCK,
    PlaceKind.CHILD,
    PlaceKind.READ,
    PlaceKind.OPEN,
    PlaceKind.INPUT,
    PlaceKind.STORE,
)


@dataclass(frozen=True)
class Place:
    """Where a process is."""

    kind: PlaceKind
    what: str
    """For a sentence: ``all_reduce``, ``backward``, ``Queue.get``; empty where only the line can be named."""
    where: Where | None = None
    """The innermost line of the script's own."""
    fetching: bool = False
    """Whether a DataLoader called the script there, to get a sample or to put a batch together."""
    peer: int | None = None
    """The rank to which its message or collective goes, or from which it comes, where its call names one."""

    @property
    def title(self) -> str:
        """What it stands in, with that rank: ``recv from rank 0``, ``gather to rank 1``."""
        way = "to" if self.what.startswith(_SENDING) else "from"
        return self.what if self.peer is None else f"{self.what} {way} rank {self.peer}"

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks."""
        return self.kind in _PEERS

    @property
    def blocks(self) -> bool:
        """Whether it waits for something that is no rank."""
        return self.kind in _BLOCKED


_PYTHON = re.compile(r"\.py[wi]?$|^<")
_C10D = "torch/distributed/distributed_c10d.py"
_NAMED = {
    "init_process_group": (PlaceKind.JOIN, "init_process_group"),
    "new_group": (PlaceKind.GROUP, "new_group"),
    "new_subgroups": (PlaceKind.GROUP, "new_subgroups"),
    "new_subgroups_by_enumeration": (PlaceKind.GROUP, "new_subgroups_by_enumeration"),
    "destroy_process_group": (PlaceKind.DESTROY, "destroy_process_group"),
}
OF_TWO = tuple(operation.name for operation in OPERATIONS if operation.kind is Kind.PAIR)
"""Operations of two ranks, which the others have no part in."""
_WAITING_IN = (
    *("torch/distributed/distributed_c10d.py", "torch/distributed/c10d_logger.py"),
    *("torch/distributed/rendezvous.py", "torch/distributed/_functional_collectives.py"),
    *("torch/distributed/nn/functional.py", "torch/nn/parallel/distributed.py", "torch/autograd/graph.py"),
    *("torch/distributed/utils.py", "torch/distributed/algorithms/join.py", "torch/cuda/__init__.py"),
)
"""Files of torch whose innermost frame means that something is waited for that other ranks bring. Backward ends in
``autograd/graph.py``: the reducer waits for the other ranks' gradients below it, in C++."""
_PATIENT = {
    "cmd.py": PlaceKind.INPUT,  # pdb's prompt
    "queue.py": PlaceKind.LOCK,
    "threading.py": PlaceKind.LOCK,
    "filelock/": PlaceKind.LOCK,
    "multiprocessing/synchronize.py": PlaceKind.LOCK,
    "multiprocessing/queues.py": PlaceKind.LOCK,
    "multiprocessing/process.py": PlaceKind.CHILD,
    "multiprocessing/popen_fork.py": PlaceKind.CHILD,
    "multiprocessing/popen_spawn_posix.py": PlaceKind.CHILD,
    "subprocess.py": PlaceKind.CHILD,
    "concurrent/futures/": PlaceKind.LOCK,
    "asyncio/": PlaceKind.LOCK,
    "multiprocessing/connection.py": PlaceKind.READ,
    "selectors.py": PlaceKind.READ,
    "socket.py": PlaceKind.READ,
    "ssl.py": PlaceKind.READ,
    "http/client.py": PlaceKind.READ,
}
"""Files of Python whose innermost frame, in a process that waits, tells for what; the most telling first."""
ASYNCHRONOUS = "the wait for an asynchronous collective"
_LARGEST = 4 << 20
"""Bytes of a source file."""
_WORK_WAIT = re.compile(r"\.wait\(\s*\)")
_ON_DEVICE = re.compile(r"\.(?:item|cpu|tolist|synchronize)\(|\.to\(\s*[\"']cpu")
_STORE = re.compile(r"store(?:\(\))?\.(get|wait|multi_get)\(", re.IGNORECASE)
_CALLS = {
    "futex": PlaceKind.LOCK,
    "flock": PlaceKind.LOCK,
    "fcntl": PlaceKind.LOCK,
    "semtimedop": PlaceKind.LOCK,
    "openat": PlaceKind.OPEN,
    "wait4": PlaceKind.CHILD,
    "waitid": PlaceKind.CHILD,
}
"""System calls by their names. All others wait for the other end of a pipe or of a connection."""
_IN_WORDS = {"futex": "a lock, or for another thread", "openat": "open"}
_LOCKS = re.compile(r"\.acquire\(|\bwith\b.*lock|flock\(|lockf\(", re.IGNORECASE)


def place_of(process: SampledProcess, *, nccl: bool = False) -> Place | None:
    """Where a process stands; None where its stack was not seen. With ``nccl`` collectives are issued to a GPU, so that
    a rank waits for them wherever it asks the GPU for something."""
    stack = [frame for frame in process.stack if _PYTHON.search(frame.file)]
    if not stack:
        return None
    last = next(reversed(of_script(stack)), -1)
    where = where_of(stack[last]) if last >= 0 else None
    fetching = any("torch/utils/data/" in frame.file for frame in stack[: max(last, 0)])
    below = stack[last + 1 :]
    # A wait for the GPU waits for the collective that it was given.
    on_gpu = (PlaceKind.COLLECTIVE, "the wait for its GPU") if process.call.endswith("Synchronize") else None
    kind, what = (
        on_gpu or _torch(below) or _python(below, process) or _line(stack[last], process, nccl, not below)
    )
    peer = process.peer if kind in (PlaceKind.COLLECTIVE, PlaceKind.PAIR) else None
    return Place(kind, what, where, fetching, peer)


def _torch(below: Sequence[Frame]) -> tuple[PlaceKind, str] | None:
    """The operation of torch that the script called, where it waits for other ranks in there."""
    if not below or not _file(below[-1]).endswith(_WAITING_IN):
        return None
    for frame in below:
        file, name = _file(frame), function(frame)
        if file.endswith(_C10D) and name in _NAMED:
            return _NAMED[name]
        if file.endswith("torch/nn/parallel/distributed.py"):
            return _of_wrapper(below)
        if file.endswith(("torch/autograd/graph.py", "torch/autograd/__init__.py", "torch/_tensor.py")):
            return PlaceKind.BACKWARD, "backward"
        if file.endswith(_WAITING_IN) and not file.endswith("c10d_logger.py"):
            return (PlaceKind.PAIR if name in OF_TWO else PlaceKind.COLLECTIVE), name
    return PlaceKind.COLLECTIVE, function(below[-1])


def _of_wrapper(below: Sequence[Frame]) -> tuple[PlaceKind, str]:
    names = {function(frame) for frame in below if _file(frame).endswith("torch/nn/parallel/distributed.py")}
    if "forward" in names:
        return PlaceKind.FORWARD, "the forward of the wrapped model"
    return PlaceKind.WRAP, "the constructor of DistributedDataParallel"


def _python(below: Sequence[Frame], process: SampledProcess) -> tuple[PlaceKind, str] | None:
    """What it waits for in Python's own library."""
    if not below or process.doing in (Doing.COMPUTES, Doing.DISK):
        return None
    if any("torch/utils/data/dataloader.py" in _file(frame) for frame in below) and _patient(below[-1]):
        return PlaceKind.LOADER, "the next batch of its DataLoader"
    innermost = next((kind for frame in reversed(below) if (kind := _patient(frame))), None)
    if innermost is None or _patient(below[-1]) is None:
        return None
    kinds = [kind for frame in below if (kind := _patient(frame)) is not None]
    kind = PlaceKind.CHILD if PlaceKind.CHILD in kinds else kinds[0]
    return kind, below[0].function


def _patient(frame: Frame) -> PlaceKind | None:
    file = _file(frame)
    return next((kind for part, kind in _PATIENT.items() if f"/{part}" in f"/{file}"), None)


def _line(frame: Frame, process: SampledProcess, nccl: bool, innermost: bool) -> tuple[PlaceKind, str]:
    """What the script's own line does, where nothing of Python's stands below it."""
    text = source_line(frame) if innermost else ""
    asks = _STORE.search(text) if process.doing in (Doing.WAITS, Doing.SLEEPS) else None
    if asks:  # a FileStore sleeps between its looks
        return PlaceKind.STORE, f"store.{asks[1]}"
    if process.doing is Doing.SLEEPS:
        return PlaceKind.SLEEP, "sleep"
    if any("c10d::" in name for name in process.native):
        return PlaceKind.COLLECTIVE, ASYNCHRONOUS
    if process.doing is not Doing.WAITS:
        return PlaceKind.ELSEWHERE, ""
    call = process.call
    rules = (
        (_WORK_WAIT.search(text), PlaceKind.COLLECTIVE, ASYNCHRONOUS),
        (nccl and _ON_DEVICE.search(text), PlaceKind.COLLECTIVE, "the wait for its GPU"),
        ("input(" in text and "read" in call, PlaceKind.INPUT, "input"),
        (_LOCKS.search(text), PlaceKind.LOCK, "a lock"),
        (call, _CALLS.get(call.partition(" ")[0], PlaceKind.READ), _IN_WORDS.get(call, call)),
    )
    return next(((kind, what) for so, kind, what in rules if so), (PlaceKind.ELSEWHERE, ""))


def source_line(frame: Frame) -> str:
    """The text of a line; empty where there is none to read: what is judged may come from another machine."""
    file = Path(frame.file)
    try:
        readable = file.is_file() and file.stat().st_size < _LARGEST
    except (OSError, ValueError):
        return ""
    return linecache.getline(frame.file, frame.line) if readable else ""


def _file(frame: Frame) -> str:
    return frame.file.replace("\\", "/")
