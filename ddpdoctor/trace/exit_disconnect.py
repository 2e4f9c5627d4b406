"""Ranks that lost a peer in the last collective of a right script, which the peer had finished before.

gloo closes a rank's connections where its process group is destroyed, and a rank that is still reading the last bytes
of the same collective then reports a lost peer. Every rank did the same, so nothing is wrong with the script.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddpdoctor.recorder.events.training import Backward, Collective
from ddpdoctor.trace import RankTrace
from ddpdoctor.trace.instances import line_of
from ddpdoctor.trace.loop_exits import begun
from ddpdoctor.trace.recording import Recording


def forgive(ranks: Sequence[RankTrace]) -> tuple[RankTrace, ...]:
    """The same ranks; those that lost their peers so, count as finished."""
    left = [rank.recording for rank in ranks if rank.finished and rank.recording and _ended(rank.recording)]
    lost = [rank for rank in ranks if not rank.finished]
    if not left or not lost or not all(_lost_at_the_end(rank, left) for rank in lost):
        return tuple(ranks)
    return tuple(
        rank if rank.finished else replace(rank, finished=True, failure=None, exit_code=0, lost_at_end=True)
        for rank in ranks
    )


def _ended(recording: Recording) -> bool:
    return recording.exit is not None and recording.raised is None and recording.exit.how == "returned"


def _lost_at_the_end(rank: RankTrace, left: Sequence[Recording]) -> bool:
    victim = rank.recording
    if victim is None or victim.raised is None or rank.failure is None or not rank.failure.of_a_victim:
        return False
    return all(
        begun(recording) == begun(victim)
        and issued(recording) == issued(victim)
        and (last := _last_line(recording)) is not None
        and last == line_of(victim.raised.at)
        for recording in left
    )


def issued(recording: Recording) -> int:
    """How many collectives of the default group the script had issued, with the one that did not end."""
    return max((call.number or 0 for call in recording.collectives if call.group is None), default=-1)


def _last_line(recording: Recording) -> tuple[str, int | None] | None:
    """The line of the last thing that the rank did together with the others."""
    done: list[Backward | Collective] = [backward for backward in recording.backwards if backward.reduced]
    done += [call for call in recording.collectives if call.group is None]
    return line_of(max(done, key=lambda event: event.time).at) if done else None
