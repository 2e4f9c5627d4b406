"""Reads what a process recorded of its training: wrappers, forwards, backwards, updates, collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ddpdoctor.model import Where
from ddpdoctor.trace.collectives import collective
from ddpdoctor.trace.digests import digest, gradients, named, number
from ddpdoctor.trace.training import (
    Backward,
    Buffers,
    Clip,
    Collective,
    Conversion,
    Forward,
    MeanLoss,
    Optimizer,
    OptimizerStep,
    Parameter,
    SchedulerStep,
    Shadow,
    TrainingStep,
    Wrapper,
)

Event = dict[str, Any]


@dataclass
class _Open:
    """What happened since the last update."""

    forwards: list[Forward] = field(default_factory=list)
    backwards: list[Backward] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    losses: list[MeanLoss] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)

    def lists(self) -> dict[str, Any]:
        """As fields of a TrainingStep."""
        return {one.name: tuple(getattr(self, one.name)) for one in fields(self)}


class TrainingReader:
    """The area of :mod:`ddpdoctor.trace.training`."""

    def __init__(self, file: Path) -> None:
        self._wrappers: dict[int, Wrapper] = {}
        self._failed: list[Wrapper] = []
        self._conversions: list[Conversion] = []
        self._optimizers: dict[int, Optimizer] = {}
        self._hyperparameters: dict[int, tuple[Mapping[str, Any], ...]] = {}
        self._steps: list[TrainingStep] = []
        self._open = _Open()
        self._collectives: list[Collective] = []
        self._begun: dict[tuple[str, int], Collective] = {}
        self._evaluations: list[Forward] = []
        self._buffers: list[Buffers] = []
        self._shadows: list[Shadow] = []
        self._progress: Event = {}

    def on_ddp_wrap(self, event: Event, at: Where | None) -> None:
        """A DistributedDataParallel is about to be constructed."""
        own = tuple(Parameter(key, tuple(shape), *rest) for key, shape, *rest in event["parameters"])
        ranks = None if event["ranks"] is None else tuple(event["ranks"])
        rest = event["modules"], event["flags"]
        self._wrappers[event["w"]] = Wrapper(
            event["w"],
            at,
            event["t"],
            event["module"],
            own,
            tuple(event["buffers"]),
            *rest,
            ranks=ranks,
            ready=False,
        )

    def on_ddp_wrapped(self, event: Event, at: Where | None) -> None:
        """It was constructed."""
        wrapper = self._wrappers[event["w"]]
        digests = named([one.key for one in wrapper.parameters], event["digests"])
        # What the constructor made of it: its default stands in no signature of newer versions.
        flags = {**wrapper.flags, "broadcast_buffers": event["broadcast_buffers"]}
        self._wrappers[event["w"]] = replace(wrapper, digests=digests, flags=flags, ready=True)

    def on_ddp_refused(self, event: Event, at: Where | None) -> None:
        """Its constructor raised; the next one takes its number."""
        self._failed.append(replace(self._wrappers.pop(event["w"]), failed=event["failed"]))

    def on_ddp_static(self, event: Event, at: Where | None) -> None:
        """_set_static_graph was called."""
        wrapper = self._wrappers[event["w"]]
        self._wrappers[event["w"]] = replace(wrapper, flags={**wrapper.flags, "static_graph": True})

    def on_ddp_convert(self, event: Event, at: Where | None) -> None:
        """BatchNorm was converted to SyncBatchNorm."""
        self._conversions.append(Conversion(event["t"], at, event["layers"], event["wrapped"]))

    def on_ddp_hook(self, event: Event, at: Where | None) -> None:
        """A communication hook was registered."""
        self._wrappers[event["w"]] = replace(self._wrappers[event["w"]], hook=event["name"], hooked_at=at)

    def on_ddp_forward(self, event: Event, at: Where | None) -> None:
        """A forward of a wrapper, or around it, has ended."""
        forward = Forward(
            event["t"] - event["s"],
            at,
            event["w"],
            event.get("around", False),
            event["grad"],
            event.get("training", True),
            event.get("synced", True),
            digest(event.get("input")),
            event.get("batch"),
            digest(event.get("random")),
            tuple(event.get("unknown", ())),
            event["s"],
            event.get("batch_norms"),
            event.get("unused"),
        )
        self._open.forwards.append(forward)
        if not forward.grad:
            self._evaluations.append(forward)

    def on_ddp_shadow(self, event: Event, at: Where | None) -> None:
        """A copy of a wrapped module was used."""
        own = named(list(event["digests"]), list(event["digests"].values()))
        self._shadows.append(Shadow(event["w"], event["number"], event["t"], at, own))

    def on_ddp_buffers(self, event: Event, at: Where | None) -> None:
        """The buffers of a wrapped module were looked at."""
        own = named(list(event["digests"]), list(event["digests"].values()))
        self._buffers.append(Buffers(event["w"], event["when"], event["t"], own, at))

    def on_step_open(self, event: Event, at: Where | None) -> None:
        """A training step begins that is written down, after some that were not."""
        self._open = _Open()

    def on_step_backward(self, event: Event, at: Where | None) -> None:
        """A backward has ended."""
        self._open.backwards.append(
            Backward(
                event["t"] - event["s"],
                at,
                tuple(event["reduced"]),
                event["c"],
                event["s"],
                event.get("factor"),
                digest(event.get("loss")),
                event.get("gathered"),
            )
        )

    def on_step_loss(self, event: Event, at: Where | None) -> None:
        """A loss took a mean."""
        counts = event["count"], event["elements"], event["backwards"]
        rest = event.get("ignored"), event.get("factor", 1.0)
        self._open.losses.append(MeanLoss(at, event["f"], *counts, *rest))

    def on_step_clip(self, event: Event, at: Where | None) -> None:
        """Gradients were clipped."""
        self._open.clips.append(
            Clip(
                event["t"],
                at,
                number(event["norm"]),
                number(event["limit"]),
                event.get("stage"),
                event.get("scale"),
                event.get("keys", 0),
                event.get("backwards", 0),
            )
        )

    def on_step_optimizer(self, event: Event, at: Where | None) -> None:
        """What an optimizer holds, at its first step or since it changed."""
        known = self._optimizers.get(event["o"])
        self._optimizers[event["o"]] = Optimizer(
            event["o"],
            event["name"],
            tuple(event["keys"]),
            tuple(event["outside"]),
            event["sharded"],
            event["averages"],
            known.at if known else at,
        )

    def on_step_taken(self, event: Event, at: Where | None) -> None:
        """An optimizer has stepped, or its step was left out."""
        index, keys = event["o"], self._optimizers[event["o"]].keys
        if "h" in event:
            self._hyperparameters[index] = tuple(event["h"])
        taken = OptimizerStep(
            index,
            event["t"] - event["s"],
            at,
            gradients(keys, event.get("g")),
            named(keys, event["b"]) if event.get("b") else None,
            named(keys, event["a"]) if event.get("a") else None,
            self._hyperparameters.get(index, ()),
            seconds=event["s"],
            norms=event.get("norms", {}),
            skipped=event.get("skipped", False),
            closure=event.get("closure", False),
        )
        self._add(event, taken)

    def _add(self, event: Event, taken: OptimizerStep) -> None:
        """Put an update into its training step, with what led to it."""
        own, self._open = self._open, _Open()
        last = self._steps[-1] if self._steps else None
        if last is not None and last.index == event["n"]:
            more = {name: getattr(last, name) + values for name, values in own.lists().items()}
            self._steps[-1] = replace(last, optimizer_steps=(*last.optimizer_steps, taken), **more)
            return
        begun = [one.time for one in own.forwards] + [one.time for one in own.backwards]
        self._steps.append(
            TrainingStep(
                event["n"],
                min([*begun, taken.time]),
                optimizer_steps=(taken,),
                phases=event.get("phases") or {},
                joined=event.get("joined", False),
                **own.lists(),
            )
        )

    def on_step_scheduler(self, event: Event, at: Where | None) -> None:
        """A scheduler has stepped."""
        step = SchedulerStep(event["i"], at, event["name"], event["metric"], event["t"], event.get("by"))
        if self._steps and self._steps[-1].index == event["n"]:
            last = self._steps[-1]
            self._steps[-1] = replace(last, schedulers=(*last.schedulers, step))

    def on_step_progress(self, event: Event, at: Where | None) -> None:
        """How far it has come."""
        self._progress = event

    def on_collective_begin(self, event: Event, at: Where | None) -> None:
        """The script is about to issue a collective, from a line that it comes from for the first time."""
        self._begun[str(event["group"]), event["n"]] = replace(collective(event, at), ended=False)

    def on_collective(self, event: Event, at: Where | None) -> None:
        """The script issued a collective."""
        self._begun.pop((str(event["group"]), event["n"]), None)
        issued = collective(event, at)
        self._collectives.append(issued)
        self._open.collectives.append(issued)

    def fields(self) -> dict[str, Any]:
        """Fields of the Recording."""
        last = self._steps[-1].index + 1 if self._steps else 0
        count = max(last, self._progress.get("steps", 0))
        return {
            "wrappers": (*self._wrappers.values(), *self._failed),
            "conversions": tuple(self._conversions),
            "optimizers": tuple(self._optimizers.values()),
            "steps": tuple(self._steps),
            "step_count": count,
            "trailing": self._trailing(count),
            "buffers": tuple(self._buffers),
            "shadows": tuple(self._shadows),
            "collectives": (*self._collectives, *self._begun.values()),
            "evaluation_forwards": tuple(self._evaluations),
            "progress": {name: value for name, value in self._progress.items() if name not in ("k", "t")},
        }

    def _trailing(self, count: int) -> TrainingStep | None:
        own = self._open
        if not own.forwards and not own.backwards:
            return None
        begun = [one.time for one in own.forwards] + [one.time for one in own.backwards]
        return TrainingStep(count, min(begun), **own.lists())
