"""All processes of a job at one moment."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddpdoctor.blame.frames import Frame, is_of_recorder
from ddpdoctor.blame.hang_snapshot import Doing
from ddpdoctor.hang.heartbeats import recorders_threads
from ddpdoctor.hang.recorder_answers import Answer, ask
from ddpdoctor.hang.stacks import MainThread, look_into
from ddpdoctor.host.activity import Activity, Snapshot, snapshot
from ddpdoctor.host.programs import program_of


@dataclass(frozen=True)
class Look:
    """What was seen."""

    time: float
    snapshots: Mapping[int, Snapshot | None]
    threads: Mapping[int, MainThread]
    """By py-spy."""
    hidden: Mapping[int, str]
    """Why py-spy saw nothing."""
    answers: Mapping[int, Answer] = field(default_factory=dict)
    """Of our recorder, from the inside."""

    def stack(self, pid: int) -> tuple[Frame, ...]:
        """Without the frames of our recorder; empty where nobody could tell."""
        stack = self.threads[pid].stack if pid in self.threads else ()
        if pid in self.hidden and pid in self.answers:
            stack = self.answers[pid].stack
        return tuple(frame for frame in stack if not is_of_recorder(frame.file))


def look(pids: Sequence[int], records: Path | None, *, first: bool) -> Look:
    """Look at these processes.

    Args:
        records: where our recorder writes; it is asked for the flight recorder at the first look, and for the stacks
            that py-spy does not see at each.
    """
    # Before py-spy halts them: a halted process would be seen as stopped.
    ours = recorders_threads(records)
    snapshots = {pid: snapshot(pid, ours) for pid in pids}
    now = time.monotonic()
    doing = {pid: Activity(None, snapshot).doing() for pid, snapshot in snapshots.items()}
    running = [pid for pid in pids if doing[pid] is not Doing.GONE]
    python = [pid for pid in running if "python" in (program_of(pid) or "python")]
    taken = look_into(python, [pid for pid in running if doing[pid] is Doing.STOPPED])
    threads = {pid: thread for pid, thread in taken.items() if isinstance(thread, MainThread)}
    hidden = {pid: str(reason) for pid, reason in taken.items() if not isinstance(reason, MainThread)}
    snapshots |= {
        pid: shot.of(thread.number)
        for pid, thread in threads.items()
        if (shot := snapshots[pid]) and thread.number
    }
    wanted = python if first else list(hidden)
    return Look(now, snapshots, threads, hidden, ask(records, wanted) if records and wanted else {})
