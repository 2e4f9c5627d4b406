"""Follows the records of a job while it runs: which ranks there are, which have ended, which have failed."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddpdoctor.blame.thresholds import OTHER_TIMEOUT, TIMEOUTS
from ddpdoctor.files import GrowingFile
from ddpdoctor.hang.heartbeats import NOW, Heartbeat, read_heartbeat
from ddpdoctor.recorder.events.decode import Malformed, decode, is_of
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.process import Exit, GroupEvent, Note, Raised, Start
from ddpdoctor.recorder.events.schema import Event
from ddpdoctor.recorder.events.training import Progress
from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.recorder.where import Site
from ddpdoctor.trace.reader import of_earlier_attempts, successive_jobs

_KINDS: tuple[type[Event], ...] = (Start, GroupEvent, OptimizerStep, Progress, Save, Raised, Exit)
"""What is of interest; the other lines need not be read."""
_RESTARTS = ("TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RESTART_COUNT")
_MOST_PHASES, _MOST_SAVES = 8, 200
_LAST_WORDS_SECONDS = 30.0
"""After the end of a script, that its process may still say something."""
_NO_PROGRESS = (Site, Note)
"""What the background thread may write while the script stands still."""


@dataclass
class RecordedProcess:
    """One recorded process of the job."""

    pid: int
    parent: int
    started: float
    given_rank: int | None
    """RANK in its environment when it started."""
    rank: int | None
    local_world_size: int | None
    joined: bool = False
    ended: bool = False
    failed: bool = False
    restarts_left: int = 0
    """How often the launcher still starts the ranks anew where one fails."""
    given_local: int | None = None
    """LOCAL_WORLD_SIZE in its environment when it started."""
    last: float = 0.0
    """When it last said something, on its own clock."""
    written: float = 0.0
    """When it was last seen to write down something new, on the monotonic clock."""
    beat: Heartbeat | None = None
    world_size: int | None = None
    """Of the job, as far as it is known."""
    backend: str = ""
    timeout: float | None = None
    """Of the process group, where the script gave one."""
    local: bool = False
    """Whether the ranks meet at an address of this host alone."""
    host: str = ""
    elsewhere: bool = False
    """Whether it runs on another host, and its record is on a disk that both share: its process is none of ours."""
    offset: float = float("inf")
    """From its clock to ours in seconds, where it is elsewhere; what was read of it came this much later, too."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The launcher's variables when it started."""
    destroyed_group: bool = False
    """Whether destroy_process_group came back, and nothing initialized a group since."""
    restarts: int = 0
    """How often the launcher had started the ranks anew before."""
    saves: deque[Save] = field(default_factory=lambda: deque(maxlen=_MOST_SAVES))
    """The last checkpoints that it wrote whole."""
    told: list[Progress] = field(default_factory=list)
    """What it told of its progress."""
    phases: deque[Mapping[str, float]] = field(default_factory=lambda: deque(maxlen=_MOST_PHASES))
    """Where the time of the newest training steps went that were written down in full, in seconds by phase."""

    @property
    def moved(self) -> float:
        """When it last showed progress."""
        return max(self.written, self.beat.moved if self.beat else 0.0)

    def hear(self, beat: Heartbeat) -> None:
        """Take note of where it says that it is."""
        self.last = max(self.last, beat.time)
        if self.elsewhere:
            self.offset = min(self.offset, time.monotonic() - beat.time)
            beat = replace(beat, time=beat.time + self.offset, moved=beat.moved + self.offset)
        self.beat = beat


class Watch:
    """The processes that recorded themselves so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[Path, GrowingFile] = {}
        self._processes: dict[Path, RecordedProcess] = {}

    def look(self) -> None:
        files, now = set(self._folder.glob("*.jsonl")), time.monotonic()
        for gone in self._files.keys() - files:  # a worker's goes with it
            del self._files[gone]
            self._processes.pop(gone, None)
        for file in files:
            process = self._processes.get(file)
            if process is None or not process.ended or now - process.written < _LAST_WORDS_SECONDS:
                for event in self._new_events(file):
                    self._take(file, event)
        for file, process in self._processes.items():
            if not process.ended and (beat := read_heartbeat(file.with_suffix(NOW))):
                process.hear(beat)

    def _new_events(self, file: Path) -> Iterator[Event]:
        lines = self._files.setdefault(file, GrowingFile(file)).new_lines()
        for line in lines:
            kind = next((kind for kind in _KINDS if is_of(line, kind)), None)
            with suppress(Malformed):
                if kind is not None:
                    yield decode(kind, line, {})
        if file in self._processes and not all(is_of(line, *_NO_PROGRESS) for line in lines):
            self._processes[file].written = time.monotonic()

    def _take(self, file: Path, event: Event) -> None:
        if isinstance(event, Start):
            rank, size = (_number(event.environ.get(name)) for name in ("RANK", "LOCAL_WORLD_SIZE"))
            made = RecordedProcess(event.pid, event.parent, event.time, rank, rank, size)
            made.given_local, made.world_size = size, _number(event.environ.get("WORLD_SIZE"))
            # A job that runs for days starts many workers, all with the variables of their rank.
            known = (it.environ for it in self._processes.values() if it.environ == event.environ)
            made.last, made.environ = event.time, next(known, event.environ)
            made.host, made.elsewhere = event.host, event.host not in ("", os.uname().nodename)
            most, made_before = (_number(event.environ.get(name)) or 0 for name in _RESTARTS)
            made.restarts_left, made.restarts = most - made_before, made_before
            self._processes[file] = made
        elif process := self._processes.get(file):
            _take_further(process, event)

    def ranks(self) -> dict[int, RecordedProcess]:
        """The process of each rank in the last attempt of the last job."""
        earlier = of_earlier_attempts(self._processes)
        given = {process.pid: process.given_rank for process in self._processes.values()}
        ranks: dict[Path, RecordedProcess] = {}
        for file, process in self._processes.items():
            # A DataLoader worker inherits its rank's environment, and is no rank; a rank has not its launcher's.
            is_worker = not process.joined and given.get(process.parent, -1) == process.given_rank
            if process.rank is not None and not is_worker and file not in earlier:
                ranks[file] = process
        last = {file for job in successive_jobs(ranks)[-1:] for file in job}
        ordered = sorted((ranks[file] for file in ranks if file in last), key=lambda it: it.started)
        return {it.rank: it for it in ordered if it.rank is not None}

    @property
    def world_size(self) -> int:
        """Of the whole job; 0 where no rank knows it."""
        return max((rank.world_size or 0 for rank in self.ranks().values()), default=0)

    @property
    def timeout(self) -> float:
        """Of the process group, in seconds."""
        ranks = self.ranks().values()
        backend = next((rank.backend for rank in ranks if rank.backend), "")
        given = (rank.timeout for rank in ranks if rank.timeout)
        return min(given, default=TIMEOUTS.get(backend, OTHER_TIMEOUT))

    def all_ended(self, nproc: int | None, is_gone: Callable[[int], bool] = lambda pid: False) -> bool:
        """Whether every rank on this host has reached the end of its script, or is gone; ``nproc`` is None where only
        the ranks themselves know how many they are."""
        ranks = list(self.ranks().values())
        expected = nproc or max((rank.local_world_size or 1 for rank in ranks), default=1)
        ended = (rank.ended or (not rank.elsewhere and is_gone(rank.pid)) for rank in ranks)
        over = len(ranks) >= expected and all(ended)
        return over and not (self.may_restart() and any(rank.failed or not rank.ended for rank in ranks))

    def may_restart(self) -> bool:
        """Whether the launcher starts the ranks anew where one fails."""
        return any(rank.restarts_left > 0 for rank in self.ranks().values())

    def somebody_failed(self) -> bool:
        """Whether the script of a rank has ended badly."""
        return any(rank.failed for rank in self.ranks().values())


def _take_further(process: RecordedProcess, event: Event) -> None:
    if isinstance(event, GroupEvent):
        process.destroyed_group = event.action == "destroy" and event.returned
    if isinstance(event, GroupEvent) and event.action == "joining":
        _take_joining(process, event.arguments, event.environ)
    elif isinstance(event, GroupEvent) and event.action == "init":
        process.rank, process.world_size = event.rank, event.size
        process.backend = event.backend or ""
        process.local_world_size = process.local_world_size or event.size
    elif isinstance(event, OptimizerStep):
        process.phases += [event.phases] if event.phases.get("total") else []
    elif isinstance(event, Save):
        process.saves += [event] if event.path and event.end is not None else []
    elif isinstance(event, Progress):
        process.told.append(event)
    elif isinstance(event, Raised):
        process.failed = True
    elif isinstance(event, Exit):
        process.ended, process.failed = True, process.failed or bool(event.status)


def _take_joining(process: RecordedProcess, arguments: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    process.joined = True
    process.rank = _number(arguments.get("rank"), _number(environ.get("RANK"), process.rank))
    process.world_size = _number(arguments.get("world_size"), _number(environ.get("WORLD_SIZE")))
    process.timeout = arguments.get("timeout")
    process.backend = str(arguments.get("backend", ""))
    address = str(arguments.get("init_method", "env://"))
    address = environ.get("MASTER_ADDR", "") if address.startswith("env://") else address
    here = (name in address for name in ("127.0.0.1", "localhost", "[::1]"))
    process.local = address.startswith("file://") or any(here)


def _number(text: object, default: int | None = None) -> int | None:
    return int(str(text)) if str(text).isdigit() else default
