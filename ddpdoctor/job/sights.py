"""What each rank is seen to do: from its record, and where that says nothing new from /proc."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from ddpdoctor.blame.place import Kind, Place, place_of
from ddpdoctor.blame.standstill import Doing
from ddpdoctor.blame.standstill import Process as Standing
from ddpdoctor.hang.beats import recorders_threads
from ddpdoctor.host.moment import BUSY_SHARE, MUCH_DATA, Moment, moment_of, work_share
from ddpdoctor.job.patience import SLEEP_SECONDS, Sight, Stand
from ddpdoctor.job.watch import Process

QUIET_SECONDS = 1.0
"""Without a word in any record; before that nobody looks at the processes."""
LOOK_SECONDS = 1.0
"""Between looks at processes: in less, single ticks of a busy machine pass for work."""
_LITTLE_SHARE = 0.02
"""Of one CPU, used by a rank that waits for no other: one that downloads uses little, one that is blocked nothing."""
_FRESH_SECONDS = 3.0
"""A process says where it is four times a second; who says nothing holds the interpreter's lock, or is stopped."""
_STORAGE = ("torch/serialization.py", "torch/distributed/checkpoint/", "safetensors/", "huggingface_hub/")
_TAKES_ITS_TIME = re.compile(
    r"save|load|checkpoint|ckpt|eval|validat|test_|upload|download|fetch|sync_to|tokeni[sz]e|prepar|preprocess",
    re.IGNORECASE,
)
"""Names of functions whose sleep, or read of a socket, is that of somebody who will come back."""
_OF_TORCH = re.compile(r"/(?:site|dist)-packages/torch/")


class Processes:
    """The processes of a job, one look after another."""

    def __init__(self) -> None:
        self._before: dict[int, Moment] = {}
        self._now: dict[int, Moment] = {}
        self._seconds = LOOK_SECONDS
        self._looked = 0.0

    def look(self, pids: Iterable[int], own_threads: Iterable[int] = ()) -> None:
        """Look at them, where the last look is not too near.

        Args:
            own_threads: those of our recorder, which are left out.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._seconds, self._looked = now - self._looked, now
        ours = set(own_threads)
        found = {pid: moment for pid in pids if (moment := moment_of(pid, ours)) is not None}
        self._before, self._now = self._now, found

    def moment(self, pid: int) -> Moment | None:
        """What was seen last; None where it is gone."""
        return self._now.get(pid)

    def moves_data(self, pid: int) -> bool:
        """Whether it read or wrote much, be it a file or what gloo sends."""
        before, after = self._before.get(pid), self._now.get(pid)
        return bool(before and after and after.moved - before.moved > MUCH_DATA * self._seconds)

    def works(self, pid: int, least: float = BUSY_SHARE, *, main: bool = False) -> bool:
        """Whether it used more than this of a CPU, or its disk; or its main thread did."""
        before, after = self._before.get(pid), self._now.get(pid)
        if after is None:
            return False
        if before is None:
            return after.state in "RD"
        if main:
            before, after = _main_of(before), _main_of(after)
        disk = not main and (self.moves_data(pid) or "D" in before.state + after.state)
        runnable = before.state == after.state == "R"
        return disk or runnable or work_share(before, after, self._seconds) > least


def _main_of(moment: Moment) -> Moment:
    return replace(moment, threads={t: ran for t, ran in moment.threads.items() if t == moment.main})


def below(pid: int) -> list[int]:
    """The processes that descend from this one."""
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


class Sights:
    """What the ranks of a job do.

    Args:
        guard: the process from which all of the job descends.
        records: where our recorder writes.
    """

    def __init__(self, guard: int, records: Path | None = None) -> None:
        self._guard, self._records = guard, records
        self._processes = Processes()
        self._children: dict[int, list[int]] = {}
        self.unrecorded: dict[int, int] = {}
        """Ranks whose process has not recorded itself, by their process id."""

    def look(self, now: float, ranks: Mapping[int, Process], expected: Iterable[int]) -> dict[int, Sight]:
        """Each rank that is there or should be."""
        missing = [rank for rank in expected if rank not in ranks]
        if now - max((one.moved for one in ranks.values()), default=now) >= QUIET_SECONDS:
            self._look_at(ranks, missing)
        seen = {rank: self._sight(now, one) for rank, one in ranks.items()}
        return seen | {rank: self._stranger(rank) for rank in missing}

    def vanished(self, ranks: Mapping[int, Process]) -> bool:
        """Whether a rank is gone that never said how it ended."""
        return any(not one.ended and moment_of(one.pid) is None for one in ranks.values())

    def place(self, process: Process) -> Place | None:
        """Where a rank stands, as it says itself."""
        if process.beat is None:
            return None
        moment = self._processes.moment(process.pid)
        doing = Doing.SLEEPS if moment and moment.call.sleeps else Doing.WAITS
        call = moment.call.text if moment else ""
        standing = Standing(process.pid, process.rank, doing=doing, call=call, stack=process.beat.stack)
        return place_of(standing, nccl=process.backend == "nccl")

    def _look_at(self, ranks: Mapping[int, Process], missing: list[int]) -> None:
        if missing:
            self.unrecorded = {rank: pid for rank, pid in _by_rank(self._guard).items() if rank in missing}
        own = [*(one.pid for one in ranks.values() if not one.ended), *self.unrecorded.values()]
        self._children = {pid: below(pid) for pid in own}
        threads = {one.beat.thread for one in ranks.values() if one.beat}
        threads |= recorders_threads(self._records)  # those in DataLoader workers, too
        self._processes.look([pid for one in own for pid in (one, *self._children[one])], threads)

    def _sight(self, now: float, process: Process) -> Sight:
        if process.ended:
            return Sight(Stand.LEFT, process.moved)
        fresh = process.beat is not None and now - process.beat.time < _FRESH_SECONDS
        place = self.place(process) if fresh else None
        if place and place.waits:
            stand = Stand.WORKS if self._computes(process, place.kind) else Stand.WAITS
            return Sight(stand, process.moved)
        if now - process.moved < QUIET_SECONDS:
            return Sight(Stand.WORKS, process.moved)
        # Who asks the store is blocked, whatever the function is called that does.
        asks = place is not None and place.kind is Kind.STORE
        names = process.beat.stack if process.beat and not asks else ()
        return replace(
            self._alone(process.pid, [(one.function, one.file) for one in names]), moved=process.moved
        )

    def _computes(self, process: Process, kind: Kind) -> bool:
        """Whether a rank is busy itself inside of what waits for others in the end."""
        if self._processes.works(process.pid, _LITTLE_SHARE, main=True):
            return process.backend != "nccl" or kind is not Kind.COLLECTIVE
        if self._processes.moves_data(process.pid):
            return True  # a large tensor, or a slow network: gloo's own threads read and write
        # NCCL's threads spin while they wait.
        return process.backend != "nccl" and self._processes.works(process.pid)

    def _alone(self, pid: int, names: list[tuple[str, str]] | None = None) -> Sight:
        """Of a rank that waits for no other rank."""
        moment = self._processes.moment(pid)
        if moment is None or moment.state in "Tt":
            return Sight(Stand.BLOCKED, 0.0)
        tree = (pid, *self._children.get(pid, ()))
        if any(self._processes.works(one, _LITTLE_SHARE) for one in tree) or _takes_its_time(
            names or [], moment
        ):
            return Sight(Stand.WORKS, 0.0)
        if moment.call.sleeps:
            return Sight(Stand.SLEEPS, 0.0, moment.call.ends_in)
        return Sight(Stand.BLOCKED, 0.0)

    def _stranger(self, rank: int) -> Sight:
        """Of a rank that recorded nothing: it imports, or has not come so far, or is not there at all."""
        pid = self.unrecorded.get(rank)
        return Sight(Stand.BLOCKED, 0.0) if pid is None else self._alone(pid)


def _takes_its_time(names: list[tuple[str, str]], moment: Moment) -> bool:
    """Whether it saves, loads, evaluates or fetches something, which ends by itself."""
    if any(part in file.replace("\\", "/") for _, file in names for part in _STORAGE):
        return True
    soon = moment.call.sleeps and moment.call.ends_in < SLEEP_SECONDS
    comes_back = soon or "socket" in moment.call.text
    own = [function for function, file in names if not _OF_TORCH.search(file)]
    return comes_back and any(_TAKES_ITS_TIME.search(function) for function in own)


def _by_rank(guard: int) -> dict[int, int]:
    """The processes below that were given a rank; the first of each, since the others are its children."""
    found: dict[int, int] = {}
    for pid in below(guard):
        try:
            environ = psutil.Process(pid).environ()
        except psutil.Error:
            continue
        # A framework that starts the other ranks itself may give them a local rank alone.
        on_first = environ.get("NODE_RANK", "0") in ("", "0")
        text = environ.get("RANK") or (environ.get("LOCAL_RANK", "") if on_first else "")
        if text.isdigit():
            found.setdefault(int(text), pid)
    return found
