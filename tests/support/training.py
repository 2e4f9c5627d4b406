"""Training that went wrong in one way, made from the right one of recordings.py."""

from collections.abc import Callable
from typing import Any

from ddpdoctor.blame.frames import Failure
from ddpdoctor.recorder.events.process import Exit, Raised
from ddpdoctor.recorder.events.training import Backward, Forward
from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.recording import Recording
from tests.support.recordings import KEYS, recorded, recording, replace, where

LINE_OF_FORWARD, LINE_OF_BACKWARD, LINE_OF_UPDATE = 48, 49, 50


def forward(time: float, **changes: Any) -> Forward:
    return replace(Forward(time, where(LINE_OF_FORWARD), 0, batch=16), **changes)


def backward(time: float, *reduced: int, **changes: Any) -> Backward:
    return replace(Backward(time, where(LINE_OF_BACKWARD), reduced, len(reduced)), **changes)


def each_step(change: Callable[[int, TrainingStep], TrainingStep], nproc: int = 2, **fields: Any) -> Trace:
    """A run whose every training step is changed by ``change(rank, step)``."""
    return recorded(
        nproc,
        lambda rank, one: replace(one, steps=tuple(change(rank, own) for own in one.steps)),
        **fields,
    )


def with_update(own: TrainingStep, **changes: Any) -> TrainingStep:
    """The step, with its first optimizer step changed."""
    first, *rest = own.optimizer_steps
    return replace(own, optimizer_steps=(replace(first, **changes), *rest))


def diverging(rank: int, own: TrainingStep, **changes: Any) -> TrainingStep:
    """The step with gradients, and weights after it, that no other rank has; ``changes`` are the step's."""
    apart = {name: {key: f"{name} {own.index} of {rank}" for key in KEYS} for name in ("gradients", "after")}
    apart["before"] = {key: f"after {own.index - 1} of {rank}" if own.index else "weights 0" for key in KEYS}
    return with_update(replace(own, **changes), **apart)


def update(optimizer: int, index: int, **changes: Any) -> OptimizerStep:
    """A step of a further optimizer, over nothing."""
    return replace(
        OptimizerStep(optimizer, index + 0.95, where(LINE_OF_UPDATE + optimizer), {}, {}, {}), **changes
    )


def raising(
    message: str,
    kind: str = "RuntimeError",
    ranks: tuple[int, ...] = (0, 1),
    nproc: int = 2,
    line: int = LINE_OF_FORWARD,
    change: Callable[[int, Recording], Recording] = lambda rank, one: one,
) -> Trace:
    """A run that ends in an exception on some ranks; the others lose their peer a moment later."""
    traces = []
    for rank in range(nproc):
        text = message.format(rank=rank) if rank in ranks else "Connection closed by peer"
        raised = Raised(
            kind if rank in ranks else "RuntimeError", text, 50.0 + (rank not in ranks), at=where(line)
        )
        one = change(rank, recording(rank, nproc, raised=raised, exit=Exit("exception", 51.0, 1)))
        failure = Failure(raised.type, text, "", raised.time)
        traces.append(RankTrace(rank, failure=failure, exit_code=1, recording=one))
    return Trace(tuple(traces), status=1, seconds=4.0, world_size=nproc)
