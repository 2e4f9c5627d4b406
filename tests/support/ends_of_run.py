"""Recorded runs whose ranks ended in different ways, as plain data."""

from collections.abc import Callable, Mapping
from typing import Any

from ddpdoctor.blame.frames import Failure
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Judgement
from ddpdoctor.recorder.events.process import Exit, Raised
from ddpdoctor.recorder.events.training import Backward, Collective, Forward
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.recording import Recording
from tests.support.judging import check
from tests.support.recordings import recorded, replace, where
from tests.support.traces import CLOSED_BY_PEER

MISMATCH, ALONE, LEFT, DECIDED, KEPT = map(check, ("DD302", "DD303", "DD305", "DD308", "DD310"))


def call(operation: str, line: int, number: int = 0, time: float = 10.0, **more: Any) -> Collective:
    return Collective(time, where(line), operation, number=number, **more)


def lost(one: Recording, line: int) -> Recording:
    """The same rank, ended by a peer that was gone."""
    raised = Raised("RuntimeError", CLOSED_BY_PEER, 20.0, at=where(line))
    groups = tuple(event for event in one.groups if event.action != "destroy")
    return replace(one, raised=raised, exit=Exit("exception", 20.0), groups=groups)


def stopped(one: Recording) -> Recording:
    """The same rank, as it was when the run was stopped."""
    groups = tuple(event for event in one.groups if event.action != "destroy")
    return replace(one, exit=None, groups=groups)


def one_more_step(line: int = 49) -> TrainingStep:
    """A step whose backward did not come to its end."""
    forward = Forward(11.0, where(48), 0)
    return TrainingStep(4, 11.0, forwards=(forward,), backwards=(Backward(11.5, where(line)),))


def run(changes: Mapping[int, Callable[[Recording], Recording]], world_size: int = 2, **fields: Any) -> Trace:
    """A run in which ranks ended as is said; who raised failed as a victim."""
    made = recorded(world_size, change=lambda rank, one: changes.get(rank, lambda same: same)(one), **fields)
    ranks = []
    for one in made.ranks:
        raised = one.recording.raised if one.recording else None
        failure = raised and Failure(raised.type, raised.message, "", raised.time)
        ended = one.recording is not None and one.recording.exit is not None and not raised
        ranks.append(replace(one, failure=failure, finished=ended, exit_code=1 if raised else None))
    return replace(made, ranks=tuple(ranks), status=1)


def judged(which: Any, trace: Trace) -> Judgement | None:
    try:
        return which.examine_run(trace)
    except NotMeasured:
        return None


def in_a_step(one: Recording) -> Recording:
    """The same rank, which went on to another step."""
    return replace(one, trailing=one_more_step())
