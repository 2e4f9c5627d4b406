"""Optimizers: what they hold, and their steps with gradients, weights and hyperparameters.

And learning-rate schedulers: the outermost calls of step that the script makes.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import CellType, FrameType
from typing import Any

from ..digest import digests, named, unseen
from ..events.updates import Optimizer, OptimizerStep, SchedulerStep
from ..patch import IN_FULL, Args, Kwargs, after_call, guarded, hook, watch
from ..randomness import StepDraws
from ..session import Session
from ..training import DigestBudget, Training, TrainingPart, parameters_of, tell_buffers
from ..where import Site
from .ddp import Hooked

_AVERAGING = "torch.distributed.optim.post_localSGD_optimizer"


_OFTEN = 0.1
"""Seconds; steps of a scheduler that come as often are written down with detailed training steps only."""
_ACCELERATE = "accelerate.scheduler"
"""The module that steps a scheduler once for each rank, since its length was counted before the data was divided."""
_NEAR = 8
"""Frames of ours and of torch between a framework's call and here, at most."""


@dataclass
class _Known:
    """An optimizer that took a step."""

    event: Optimizer
    """What was last told of it."""
    ref: weakref.ref[Any]
    ration: DigestBudget
    shape: tuple[Any, ...] = ()
    """How many parameters its groups had, and how many wrappers there were, when its keys were told."""
    hyperparameters: tuple[dict[str, Any], ...] | None = None
    """Its hyperparameters as they were last written down."""


@dataclass
class _Step:
    """A step that is under way."""

    optimizer: Any
    known: _Known
    idle: float
    event: OptimizerStep
    """What is written down of it, where it is written down in full."""
    digested: bool = False


class _Optimizers(TrainingPart):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.draws = StepDraws.of(session)
        self.known: list[_Known] = []
        self.by_id: dict[int, _Known] = {}
        self.averaging: weakref.WeakSet[Any] = weakref.WeakSet()
        self.under_way: list[_Step] = []

    def made(self, _: Any, args: Args, __: Kwargs) -> None:
        self.training.optimizers[args[0]] = self.session.here()

    def averages(self, _: Any, args: Args, __: Kwargs) -> None:
        """One was constructed that averages the parameters of another one."""
        self.averaging.add(args[0].optim)

    def begin(self, optimizer: Any, args: Args, kwargs: Kwargs) -> None:
        if self.training.quiet and not self.under_way:
            return
        if self.under_way:
            self.under_way = [other for other in self.under_way if other.optimizer is not optimizer]
        known = self._know(optimizer)
        step = _Step(optimizer, known, 0.0, OptimizerStep(known.event.index, time.monotonic(), None))
        if len(args) > 1 or kwargs:
            step.event.closure = callable(args[1] if len(args) > 1 else kwargs.get("closure"))
        if self.session.detailed:
            self._look(step)
        step.idle = self.training.waits.idle()
        self.under_way.append(step)

    def _look(self, step: _Step) -> None:
        optimizer, known, event = step.optimizer, step.known, step.event
        self._tell_made(optimizer, known)
        self.draws.look(known.event.at, inside=False, last=True)
        hooked = Hooked.of(self.session)
        if hooked.records:
            hooked.updating()
        number = self.training.number - self.training.updated
        parameters = list(parameters_of(optimizer)) if self.training.sampling.is_digested(number) else []
        step.digested = bool(parameters) and known.ration.take(number, parameters, 3)
        if step.digested:
            event.before = named(known.event.keys, digests(self.torch, parameters))
            if not event.closure:
                event.gradients = self._gradients(step)
        event.norms = self._norms()
        event.not_waited_for = tuple(self.training.not_waited_for)
        self.training.not_waited_for.clear()
        event.time = time.monotonic()

    def end(self, optimizer: Any, *_: Any) -> None:
        if self.training.quiet and not self.under_way:
            if (known := self.by_id.get(id(optimizer))) is None or known.ref() is not optimizer:
                known = self._know(optimizer)
            self.training.close_step(known.event.index)
            return
        position = len(self.under_way) - 1
        while position >= 0 and self.under_way[position].optimizer is not optimizer:
            position -= 1
        if position < 0:
            return
        step = self.under_way.pop(position)
        step.event.seconds = round(time.monotonic() - step.event.time, 6)
        if not self.under_way:
            self.training.spend("step", step.event.seconds, step.idle)
        if self._close(step.event):
            self._look_after(step)
            self.session.event(step.event)

    def _look_after(self, step: _Step) -> None:
        known, event = step.known, step.event
        if step.digested:
            if event.closure:
                event.gradients = self._gradients(step)
            event.after = named(known.event.keys, digests(self.torch, list(parameters_of(step.optimizer))))
        with unseen(self.torch):
            hyperparameters = tuple(self._numbers(group) for group in step.optimizer.param_groups)
        if hyperparameters != known.hyperparameters:
            known.hyperparameters = event.hyperparameters = hyperparameters

    def _close(self, event: OptimizerStep) -> bool:
        """End the training step; whether it is written down in full."""
        ended = self.training.ended[event.optimizer]
        event.step, phases = self.training.close_step(event.optimizer)
        if self.session.detailed:
            event.at, event.phases = self.session.here(), phases or {}
            event.joined, event.wrappers = bool(self.training.joined), len(self.training.wrappers)
            event.number = None if ended == event.step else ended
        return self.session.detailed

    @guarded
    def skipped(self, optimizer: Any) -> None:
        """A GradScaler left the step out, because a gradient was not finite."""
        known = self._know(optimizer)
        if self.session.detailed:
            self._tell_made(optimizer, known)
        event = OptimizerStep(known.event.index, time.monotonic(), None)
        if self._close(event):
            self.session.event(event)

    def _know(self, optimizer: Any) -> _Known:
        if (known := self.by_id.get(id(optimizer))) is None or known.ref() is not optimizer:
            first = next(parameters_of(optimizer), None)
            device = "cpu" if first is None else first.device.type
            ration = DigestBudget(full=self.session.options.full, device=device)
            sharded = _is_sharded(optimizer) or any(
                step.known.event.sharded for step in self.under_way if step.optimizer is not optimizer
            )
            event = Optimizer(len(self.known), type(optimizer).__name__, sharded=sharded)
            known = _Known(event, weakref.ref(optimizer), ration)
            self.known.append(known)
            if event.index and not self.training.updated:
                self.training.begin_anew()
            self.by_id[id(optimizer)] = known
        return known

    def _tell_made(self, optimizer: Any, known: _Known) -> None:
        """Write down what it holds, again when that has changed."""
        groups = [group["params"] for group in optimizer.param_groups]
        shape = (*(len(group) for group in groups), len(self.training.wrappers))
        if shape == known.shape:
            return
        known.shape, event, keys = shape, known.event, self.training.keys
        event.keys = tuple(keys.of_groups(groups))
        parameters = [parameter for group in groups for parameter in group]
        outside = [p for p in parameters if p.requires_grad and not keys.is_wrapped(p)]
        event.outside = tuple(keys.get(parameter) or "" for parameter in outside)
        event.averages = optimizer in self.averaging
        event.at, event.made = event.at or self.session.here(), self.training.optimizers.get(optimizer)
        event.defaults = self._numbers(getattr(optimizer, "defaults", {}))
        self.session.event(event)

    def _gradients(self, step: _Step) -> dict[str, str | None]:
        gradients = [parameter.grad for parameter in parameters_of(step.optimizer)]
        return named(step.known.event.keys, digests(self.torch, gradients))

    def _norms(self) -> dict[str, float]:
        """Norms of the gradients that the script gave to a collective."""
        exchanged, self.training.exchanged = self.training.exchanged, {}
        norms = {}
        with unseen(self.torch):
            for parameter in exchanged.values():
                if (key := self.training.keys.get(parameter)) is not None and parameter.grad is not None:
                    norms[key] = float(parameter.grad.norm())
        return norms

    def _numbers(self, group: Mapping[str, Any]) -> dict[str, Any]:
        named = ((name, self._plain(value)) for name, value in group.items() if name != "params")
        return {name: plain for name, plain in named if plain is not None}

    def _plain(self, value: Any) -> Any:
        """A number, or a short list of numbers; None for anything else."""
        if isinstance(value, bool | int | float):
            return value
        if isinstance(value, list | tuple) and len(value) <= 4:
            return [self._plain(element) for element in value]
        if isinstance(value, self.torch.Tensor) and value.dim() == 0 and value.device.type == "cpu":
            return value.item()
        return None


def _is_sharded(optimizer: Any) -> bool:
    """Whether each rank holds another part by design: ZeroRedundancyOptimizer, DTensor, FullyShardedDataParallel."""
    if any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__):
        return True
    return any(hasattr(p, "placements") or hasattr(p, "_fsdp_flattened") for p in parameters_of(optimizer))


def install(session: Session) -> None:
    """Watch every torch.optim.Optimizer by torch's own global hooks, and schedulers."""
    optimizers = _Optimizers(session)
    torch = session.torch
    session.shared["optimizers"] = optimizers

    hooks = sys.modules["torch.optim.optimizer"]  # torch.optim deletes its own name of it
    session.on_undo(hooks.register_optimizer_step_pre_hook(hook(torch, optimizers.begin)).remove)
    session.on_undo(hooks.register_optimizer_step_post_hook(hook(torch, optimizers.end)).remove)
    session.patch(torch.optim.Optimizer, "__init__", after_call(optimizers.made))
    session.patch_later(_AVERAGING, "PostLocalSGDOptimizer.__init__", after_call(optimizers.averages))
    session.before_destroy.append(functools.partial(tell_buffers, session, "end"))
    session.before_end.append(functools.partial(_tell_end, optimizers.training))
    _watch_schedulers(session)


def _tell_end(training: Training, how: str) -> None:
    """The script is over: how far it came, and the buffers it leaves."""
    if training.session.steps or training.collectives:
        training.tell_progress()
    dist = training.torch.distributed
    if how != "exception" and dist.is_available() and dist.is_initialized():
        tell_buffers(training.session, "end")


class _Schedulers(TrainingPart):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.depth = 0
        self.made: dict[int, tuple[Site | None, tuple[int, ...]]] = {}
        """Where each was constructed, and the numbers that it holds since."""
        self.last: dict[int, float] = {}
        self.watched = watch(session.torch, self._begin_step, self._end_step, self._step_briefly)

    def patch_class(self, kind: type) -> None:
        """Watch ``step`` where this class or one of its bases defines it."""
        for base in kind.__mro__:
            if "step" in vars(base):
                self.session.patch(base, "step", self.watched)

    def _step_briefly(self, original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        if self.depth or not self.training.quiet:
            return IN_FULL
        number, now = self._number(args[0]), time.monotonic()
        if now - self.last.get(number, 0.0) >= _OFTEN:
            return IN_FULL
        self.last[number] = now
        self.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            self.depth -= 1

    def _begin_step(self, args: Args, kwargs: Kwargs) -> Any:
        self.depth += 1
        return args, kwargs

    def _end_step(self, begun: Any, _: Any, error: BaseException | None) -> None:
        self.depth -= 1
        args, kwargs = begun
        if self.depth or error is not None:
            return
        self._tell(args[0], args[1] if len(args) > 1 else kwargs.get("metrics"))

    def _tell(self, scheduler: Any, metric: Any) -> None:
        number = self._number(scheduler)
        now = time.monotonic()
        before, self.last[number] = self.last.get(number, 0.0), now
        if not self.session.detailed and now - before < _OFTEN:
            return
        plateau = (
            "metrics" in type(scheduler).step.__code__.co_varnames or "Plateau" in type(scheduler).__name__
        )
        step = SchedulerStep(
            number,
            self.session.here(),
            type(scheduler).__name__,
            _metric(self.torch, metric) if plateau else None,
            now,
            _framework(sys._getframe(1)),
            self.session.steps - 1,
            epoch if type(epoch := getattr(scheduler, "last_epoch", None)) is int else None,
            *self.made.get(number, (None, ())),
        )
        self.session.event(step)

    def _number(self, scheduler: Any) -> int:
        if (known := self.known.get(id(scheduler))) is None or known[0]() is not scheduler:
            known = self.known[id(scheduler)] = weakref.ref(scheduler), len(self.known)
        return known[1]

    def begin_made(self, args: Args, kwargs: Kwargs) -> Any:
        """A constructor: the steps in it are its own, and its class may have a step of its own."""
        self.patch_class(type(args[0]))
        self.depth += 1
        return args[0]

    def end_made(self, made: Any, _: Any, error: BaseException | None) -> None:
        self.depth -= 1
        if not self.depth and error is None:
            self.made[self._number(made)] = self.session.here(), _lengths(made)


def _framework(frame: FrameType | None) -> str | None:
    """The framework on whose own account a scheduler is stepped; None where the script steps it."""
    for _ in range(_NEAR):
        if frame is None or frame.f_globals.get("__name__") == _ACCELERATE:
            return "accelerate" if frame else None
        frame = frame.f_back
    return None


def _lengths(scheduler: Any) -> tuple[int, ...]:
    """The numbers above 1 that a scheduler holds, or the functions do that it asks for the learning rate."""
    held = {name: it for name, it in vars(scheduler).items() if name not in ("last_epoch", "_step_count")}
    for function in held.get("lr_lambdas") or ():
        held |= getattr(function, "keywords", None) or {}
        cells = getattr(function, "__closure__", None) or ()
        held |= {f"cell {number}": _held_by(it) for number, it in enumerate(cells)}
    return tuple(sorted({it for it in held.values() if type(it) is int and it > 1}))


def _held_by(cell: CellType) -> Any:
    with suppress(ValueError):  # an empty one
        return cell.cell_contents
    return None


def _metric(torch: Any, metric: Any) -> float | None:
    if isinstance(metric, torch.Tensor) and (metric.numel() != 1 or metric.device.type == "meta"):
        return None
    try:
        return float(metric)
    except (TypeError, ValueError):
        return None


def _watch_schedulers(session: Session) -> None:
    """Watch the schedulers of torch, and classes derived from them once they are made."""
    schedulers = _Schedulers(session)
    module = session.torch.optim.lr_scheduler
    base = module.LRScheduler
    kinds = [var for var in vars(module).values() if isinstance(var, type) and issubclass(var, base)]
    made = watch(session.torch, schedulers.begin_made, schedulers.end_made)
    for kind in kinds:
        schedulers.patch_class(kind)
        if "__init__" in vars(kind):
            session.patch(kind, "__init__", made)
    session.patch(base, "_initial_step", made)
