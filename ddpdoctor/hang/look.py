"""All processes of a job at one moment, and what one of them did between two such moments."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddpdoctor.blame.frames import Frame, is_of_recorder
from ddpdoctor.blame.standstill import Doing
from ddpdoctor.hang.answers import Answer, ask
from ddpdoctor.hang.beats import recorders_threads
from ddpdoctor.hang.stacks import Seen, look_into
from ddpdoctor.host.calls import Call
from ddpdoctor.host.moment import BUSY_SHARE, MUCH_DATA, Moment, moment_of, work_share
from ddpdoctor.host.programs import program_of


@dataclass(frozen=True)
class Look:
    """What was seen."""

    time: float
    moments: Mapping[int, Moment | None]
    seen: Mapping[int, Seen]
    """By py-spy."""
    hidden: Mapping[int, str]
    """Why py-spy saw nothing."""
    answers: Mapping[int, Answer] = field(default_factory=dict)
    """Of our recorder, from the inside."""

    def stack(self, pid: int) -> tuple[Frame, ...]:
        """Without the frames of our recorder; empty where nobody could tell."""
        found = self.seen[pid].stack if pid in self.seen else ()
        if pid in self.hidden and pid in self.answers:
            found = self.answers[pid].stack
        return tuple(frame for frame in found if not is_of_recorder(frame.file))


def look(pids: Sequence[int], records: Path | None, *, first: bool) -> Look:
    """Look at these processes.

    Args:
        records: where our recorder writes; it is asked for the flight recorder at the first look, and for the stacks
            that py-spy does not see at each.
    """
    # Before py-spy halts them: a halted process would be seen as stopped.
    ours = recorders_threads(records)
    moments = {pid: moment_of(pid, ours) for pid in pids}
    now = time.monotonic()
    running = [pid for pid, moment in moments.items() if state_of(moment) is not Doing.GONE]
    python = [pid for pid in running if "python" in (program_of(pid) or "python")]
    taken = look_into(python, [pid for pid in running if state_of(moments[pid]) is Doing.STOPPED])
    seen = {pid: one for pid, one in taken.items() if isinstance(one, Seen)}
    hidden = {pid: str(one) for pid, one in taken.items() if not isinstance(one, Seen)}
    wanted = python if first else list(hidden)
    return Look(now, moments, seen, hidden, ask(records, wanted) if records and wanted else {})


def doing_of(before: Moment | None, after: Moment | None, seconds: float) -> Doing:
    """What a process did in between."""
    state = state_of(after)
    if before is None or after is None or state in (Doing.GONE, Doing.STOPPED):
        return state
    # One that stands in the queue all the time has used nothing, and is runnable at both looks.
    if work_share(before, after, seconds) > BUSY_SHARE or before.state == after.state == "R":
        return Doing.COMPUTES
    if "D" in before.state + after.state or after.moved - before.moved > MUCH_DATA * seconds:
        return Doing.DISK
    return Doing.SLEEPS if call_of(before, after).sleeps else Doing.WAITS


def state_of(moment: Moment | None) -> Doing:
    """What one moment alone tells."""
    if moment is None or moment.state in "ZX":
        return Doing.GONE
    return Doing.STOPPED if moment.state in "Tt" else Doing.UNKNOWN


def call_of(before: Moment | None, after: Moment | None) -> Call:
    """That of the first moment: after it py-spy has interrupted the call, which then may look like another."""
    return before.call if before else after.call if after else Call()
