"""Updates of the weights: clipped gradients, optimizers, schedulers. Keys and digests as in ``training``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..where import Where
from .schema import Event


@dataclass(slots=True)
class Clip(Event):
    """A call of ``clip_grad_norm_`` or ``clip_grad_value_``."""

    time: float
    at: Where | None
    norm: float | None = None
    """What it returned."""
    limit: float | None = None
    stage: str | None = None
    """The GradScaler's stage for these parameters: ``READY`` before, ``UNSCALED`` after unscale_; None without one."""
    scale: float | None = None
    keys: int = 0
    """How many parameters it was given."""
    backwards: int = 0
    """Backwards of this training step that were done before it."""


@dataclass(slots=True)
class SchedulerStep(Event):
    """An outermost call of a learning-rate scheduler's ``step``."""

    scheduler: int
    at: Where | None
    name: str
    metric: float | None = None
    """What ReduceLROnPlateau was given."""
    time: float = 0.0
    by: str | None = None
    """The framework that stepped it as often as it thinks right; None where the script did."""
    step: int = -1
    """The training step that was the last before it."""
    epoch: int | None = None
    """The scheduler's ``last_epoch`` after it."""
    made: Where | None = None
    """Where it was constructed."""
    lengths: tuple[int, ...] = ()
    """The numbers above 1 that it was made with, as its total steps are."""


@dataclass(slots=True)
class Optimizer(Event):
    """An optimizer that took a step."""

    KEY: ClassVar[str] = "index"

    index: int
    name: str
    """Its class."""
    keys: tuple[str, ...] = ()
    """Its parameters."""
    outside: tuple[str, ...] = ()
    """Those of them that require a gradient and that no wrapper knows."""
    sharded: bool = False
    """Whether ranks hold different parts by design: ZeroRedundancyOptimizer and what is inside it."""
    averages: bool = False
    """Whether it averages parameters itself by design: PostLocalSGDOptimizer."""
    at: Where | None = None
    """Its first step."""
    made: Where | None = None
    """Where it was constructed."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The hyperparameters that it was constructed with."""


@dataclass(slots=True)
class OptimizerStep(Event):
    """One step of one optimizer."""

    optimizer: int
    time: float
    at: Where | None
    gradients: Mapping[str, str | None] | None = None
    """Digest of each gradient just before; None as a value where a parameter had none; None where not taken."""
    before: Mapping[str, str] | None = None
    """Digests of the parameters just before."""
    after: Mapping[str, str] | None = None
    hyperparameters: tuple[Mapping[str, Any], ...] = ()
    """Of each parameter group: lr, weight_decay, momentum, betas, ...; written where they are others than before."""
    seconds: float = 0.0
    norms: Mapping[str, float] = field(default_factory=dict)
    """Norms of those gradients that the script itself gave to a collective, just before the step."""
    closure: bool = False
    """Whether it was given a function that computes the loss anew, as often as the optimizer likes."""
    step: int = 0
    """The training step that it belongs to."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Where that training step's time went, at its first update; ``waits`` are for other ranks, ``recorder`` ours."""
    joined: bool = False
    """Whether a Join was active."""
    wrappers: int = 0
    """How many had been constructed."""
    number: int | None = None
    """Training steps that this optimizer had ended before, since the last of them was constructed; None where that is
    the training step's own number."""
    not_waited_for: tuple[int, ...] = ()
    """Ids of collectives that fill gradients or parameters, begun with ``async_op=True`` and not yet waited for."""


@dataclass(slots=True)
class HookedGradient(Event):
    """A few values of one gradient."""

    step: int
    wrapper: int | None
    """None where nothing is wrapped, and the script exchanges gradients after its backward."""
    key: str
    given: tuple[float, ...]
    """The rank's own, before the hook; where nothing is wrapped, after the backward."""
    got: tuple[float, ...] = ()
    """After the backward; where nothing is wrapped, at the update."""
    used: tuple[float, ...] = ()
    """At the update."""
    factor: float | None = None
    """What the loss is multiplied by, where it is a mean over the rank's samples; None where that cannot be told."""
    backwards: int = 1
    """How many led to the update."""

    @property
    def at(self) -> tuple[int, int | None, str]:
        """Which it is, the same on every rank."""
        return self.step, self.wrapper, self.key
