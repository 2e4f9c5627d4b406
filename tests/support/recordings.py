"""Traces of recorded runs, as plain data: what a right program leaves behind, with one thing changed at a time."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.data import Loader, Sampler
from ddpdoctor.recorder.events.files import FileEvent, Load, Save
from ddpdoctor.recorder.events.process import Exit, GroupEvent
from ddpdoctor.recorder.events.schema import Event
from ddpdoctor.recorder.events.training import Backward, Forward, Parameter, Wrapper
from ddpdoctor.recorder.events.updates import Optimizer, OptimizerStep
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.data import Pass, TrainingStep
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Events, Recording

KEYS = ("weight", "bias")
KINDS = {name: field.kind for name, field in vars(Recording).items() if isinstance(field, Events)} | {
    "files": FileEvent
}
"""The kinds of events that a recording has by name."""
_T = TypeVar("_T")


def replace(original: _T, **changes: Any) -> _T:
    """``dataclasses.replace``; of a recording also its events, by the name of their kind or as a ``record``."""
    if not isinstance(original, Recording):
        return dataclasses.replace(original, **changes)  # type: ignore[type-var]
    added = changes.pop("record", Record())
    kinds = (*Event.__subclasses__(), Save, Load)
    events = {kind: added.events(kind) or original.record.events(kind) for kind in kinds}
    events |= {KINDS[name]: tuple(changes.pop(name)) for name in KINDS if name in changes}
    changes["record"] = Record.made(*(event for of_kind in events.values() for event in of_kind))
    return dataclasses.replace(original, **changes)  # type: ignore[type-var]


def where(line: int, function: str = "main") -> Where:
    """A line of the user's script."""
    return Where("train.py", line, function)


def step(index: int, **changes: Any) -> TrainingStep:
    """A right training step: one forward, one backward that reduced, one update; equal on every rank."""
    gradients = {key: f"gradient {index} {key}" for key in KEYS}
    before, after = ({key: f"weights {n} {key}" for key in KEYS} for n in (index, index + 1))
    update = OptimizerStep(
        0, index + 0.9, where(50), gradients, before, after, ({"lr": 0.1, "weight_decay": 0.0},)
    )
    right = TrainingStep(
        index,
        float(index),
        forwards=(Forward(index + 0.2, where(48), 0, input=f"input {index}", batch=4),),
        backwards=(Backward(index + 0.5, where(49), reduced=(0,), collectives=1),),
        optimizer_steps=(update,),
    )
    return replace(right, **changes)


def recording(rank: int, world_size: int = 2, steps: int = 4, **changes: Any) -> Recording:
    """A right program on one rank: a wrapped Linear, SGD, two training passes over sharded data."""
    sampler = Sampler(
        "DistributedSampler", True, rank, world_size, seed=0, epoch=0, shuffle=True, total=8 * world_size
    )
    shard = tuple(range(rank, 8 * world_size, world_size))
    record = Record.made(
        GroupEvent("init", 0.0, where(20), "gloo", rank, world_size),
        GroupEvent("destroy", 90.0, where(70)),
        Wrapper(0, where(30), 0.1, "Linear", tuple(Parameter(key, (4,), "float32") for key in KEYS)),
        Optimizer(0, "SGD", KEYS, at=where(50)),
        Loader(0, where(40), "TensorDataset", 8 * world_size, batch_size=4, sampler=sampler),
    )
    made = Recording(
        pid=1000 + rank,
        host="node0",
        torch="2.13.0",
        script="/jobs/train.py",
        record=record,
        steps=tuple(
            step(i, forwards=(Forward(i + 0.2, where(48), 0, input=f"input {i} of {rank}", batch=4),))
            for i in range(steps)
        ),
        step_count=steps,
        passes=(
            Pass(0, 0, where(45), 0.1, 1.9, sampler, shard, 2, 2, "exhausted", training=True),
            Pass(
                0,
                1,
                where(45),
                2.1,
                3.9,
                replace(sampler, epoch=1),
                shard[::-1],
                2,
                2,
                "exhausted",
                training=True,
            ),
        ),
        exit=Exit("returned", 100.0, 0),
        last=100.0,
    )
    return replace(made, **changes)


def recorded(
    world_size: int = 2, change: Callable[[int, Recording], Recording] | None = None, **fields: Any
) -> Trace:
    """A run of a right program; ``change(rank, recording)`` alters what a rank left behind."""
    right = {rank: recording(rank, world_size) for rank in range(world_size)}
    return trace({rank: change(rank, it) if change else it for rank, it in right.items()}, **fields)


def trace(recordings: Mapping[int, Recording], **fields: Any) -> Trace:
    """A run that left these recordings."""
    ranks = tuple(
        RankTrace(rank, finished=recording.exit is not None, recording=recording)
        for rank, recording in recordings.items()
    )
    return Trace(ranks, **{"world_size": len(ranks), "seconds": 4.0, **fields})
