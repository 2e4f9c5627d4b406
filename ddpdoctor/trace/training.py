"""Training as the recorder saw it: wrappers, forwards, backwards, optimizers and their steps. Plain data.

Parameters go by a *key*: the name in the wrapped module; ``name (wrapper 1)`` for those of a second wrapper;
``Class.name`` for those that no wrapper knows. A key means the same on every rank. Digests are short strings,
equal where the bits are equal; None stands for what was not taken, since digests are taken at the first steps
and then at growing intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpdoctor.model import Where


@dataclass(frozen=True)
class Parameter:
    """A parameter of a wrapped module, as it was when it was wrapped."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool = True
    device: str = "cpu"


@dataclass(frozen=True)
class Wrapper:
    """A DistributedDataParallel that was constructed."""

    index: int
    """In order of construction, which is the same on every rank of a right program."""
    at: Where | None
    time: float
    module: str
    """The class of the wrapped module."""
    parameters: tuple[Parameter, ...] = ()
    buffers: tuple[str, ...] = ()
    """Names of the module's buffers."""
    modules: Mapping[str, int] = field(default_factory=dict)
    """How many submodules of the classes that matter: ``BatchNorm``, ``SyncBatchNorm``, ``Dropout``, ..."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """broadcast_buffers, find_unused_parameters, static_graph, gradient_as_bucket_view, device_ids, ..."""
    hook: str | None = None
    """The name of the communication hook that was registered, if any."""
    hooked_at: Where | None = None
    ranks: tuple[int, ...] | None = None
    """The members of its process group, as global ranks; None for the default group."""
    failed: str | None = None
    """What its constructor raised: ``Type: message``."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of all parameters, right after construction, when DDP has made them equal."""
    ready: bool = True
    """Whether its constructor returned."""


@dataclass(frozen=True)
class Conversion:
    """A call of ``SyncBatchNorm.convert_sync_batchnorm``."""

    time: float
    at: Where | None
    layers: int = 0
    """How many BatchNorm layers it found."""
    wrapped: bool = False
    """Whether the module was a wrapper, or inside one, already."""


@dataclass(frozen=True)
class Forward:
    """A forward of a wrapper, or of a wrapped module around its wrapper."""

    time: float
    at: Where | None
    wrapper: int
    around: bool = False
    """Whether the wrapped module itself was called, so that DDP knows nothing of it."""
    grad: bool = True
    """Whether autograd was on."""
    training: bool = True
    """The module's mode."""
    synced: bool = True
    """``require_backward_grad_sync``: False inside no_sync."""
    input: str | None = None
    """Digest of the first tensor given."""
    batch: int | None = None
    """The first dimension of the first tensor given."""
    random: str | None = None
    """Digest of the CPU random state, where an active dropout will draw from it."""
    unknown: tuple[str, ...] = ()
    """Names of trainable parameters that were not there when the module was wrapped, or are others now."""
    seconds: float = 0.0
    batch_norms: int | None = None
    """How many BatchNorm layers, SyncBatchNorm apart, are in train mode; None where it was not looked at."""
    unused: int | None = None
    """Bytes of parameters that this rank left unused in the last step that DDP kept count of, where it is a new one."""


@dataclass(frozen=True)
class Backward:
    """A backward that the script started."""

    time: float
    at: Where | None
    reduced: tuple[int, ...] = ()
    """The wrappers whose reducer all-reduced gradients during it."""
    collectives: int = 0
    """How many collectives the default group counted during it, DDP's own included."""
    seconds: float = 0.0
    factor: float | None = None
    """What the loss was multiplied by last, a GradScaler's scale apart: 0.25 where it was divided by 4; None where
    that cannot be told."""
    loss: str | None = None
    """Digest of the loss."""
    gathered: bool | None = None
    """Whether the graph of the loss holds tensors as long as what all_gather returned before in this step; None
    where nothing that carries a gradient was gathered, or torch does not tell."""


@dataclass(frozen=True)
class Clip:
    """A call of ``clip_grad_norm_`` or ``clip_grad_value_``."""

    time: float
    at: Where | None
    norm: float | None = None
    """What it returned."""
    limit: float | None = None
    stage: str | None = None
    """The GradScaler's stage for the optimizer of these parameters: ``READY`` before, ``UNSCALED`` after unscale_;
    None where no scaler is in use."""
    scale: float | None = None
    keys: int = 0
    """How many parameters it was given."""
    backwards: int = 0
    """Backwards of this training step that were done before it."""


@dataclass(frozen=True)
class MeanLoss:
    """A loss that divides by a count of its own."""

    at: Where | None
    function: str | None
    """None where the script divides a sum by hand; then ``at`` is its backward."""
    count: int
    """The denominator: targets that are not ignored, or elements."""
    elements: int = 0
    """All targets, the ignored ones too."""
    backwards: int = 0
    """Backwards of this training step that were done before it: which micro-batch it belongs to."""
    ignored: int | None = None
    """The target that does not count, where some targets were it."""
    factor: float = 1.0
    """What a sum that is divided by hand is multiplied by besides."""


@dataclass(frozen=True)
class SchedulerStep:
    """An outermost call of a learning-rate scheduler's ``step``."""

    scheduler: int
    at: Where | None
    name: str
    metric: float | None = None
    """What ReduceLROnPlateau was given."""
    time: float = 0.0
    by: str | None = None
    """The framework that stepped it as often as it thinks right; None where the script did."""


@dataclass(frozen=True)
class Optimizer:
    """An optimizer that took a step."""

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


@dataclass(frozen=True)
class OptimizerStep:
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
    """Of each parameter group: lr, weight_decay, momentum, betas, ..."""
    seconds: float = 0.0
    norms: Mapping[str, float] = field(default_factory=dict)
    """Norms of those gradients that the script itself gave to a collective, just before the step."""
    skipped: bool = False
    """Whether a GradScaler left it out, because a gradient was not finite."""
    closure: bool = False
    """Whether it was given a function that computes the loss anew, as often as the optimizer likes."""


@dataclass(frozen=True)
class Collective:
    """A collective that the script issued through torch.distributed."""

    time: float
    at: Where | None
    operation: str
    """As the function is called: ``all_reduce``, ``barrier``, ..."""
    group: tuple[int, ...] | None = None
    """The members as global ranks; None for the default group."""
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    reduce: str | None = None
    """``sum``, ``avg``, ...; None where nothing is reduced."""
    gradient_of: str | None = None
    """The key of the parameter whose gradient the tensor is."""
    requires_grad: bool = False
    """Whether the tensor given carried a gradient while autograd was on."""
    differentiable: bool = False
    """Whether it came through torch.distributed.nn, which lets gradients pass."""
    seconds: float = 0.0
    peer: int | None = None
    """The source or destination, of those that have one."""
    norm: float | None = None
    """The norm of the gradient given, before it was reduced, where it is a gradient."""
    weight_of: str | None = None
    """The key of the parameter that the tensor is."""
    number: int | None = None
    """How many collectives of its group the script had issued before; of those that come often not all are kept."""
    ended: bool = True
    """Whether the call came to an end; that it did not is known of a line's first call only."""


@dataclass(frozen=True)
class TrainingStep:
    """What happened from one update of the weights to the next: forwards, backwards, optimizer steps.

    Optimizers that step one after the other without a backward between them belong to one training step.
    """

    index: int
    time: float
    forwards: tuple[Forward, ...] = ()
    backwards: tuple[Backward, ...] = ()
    clips: tuple[Clip, ...] = ()
    losses: tuple[MeanLoss, ...] = ()
    optimizer_steps: tuple[OptimizerStep, ...] = ()
    schedulers: tuple[SchedulerStep, ...] = ()
    """Those stepped after this update and before the next."""
    collectives: tuple[Collective, ...] = ()
    """Those that the script itself issued, up to the optimizer's step."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds in ``data``, ``forward``, ``backward``, ``step``, ``collective`` and, as ``total``, between updates."""
    joined: bool = False
    """Whether a Join was active, under which ranks differ by design."""


@dataclass(frozen=True)
class Shadow:
    """An unwrapped copy of a wrapped module, an average of its weights for instance, at a no-grad forward."""

    wrapper: int
    """The wrapper whose parameters have the same names and shapes."""
    number: int
    """Which copy, in order of first use."""
    time: float
    at: Where | None
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of its parameters and buffers."""


@dataclass(frozen=True)
class Buffers:
    """The buffers of a wrapped module at a moment when they count."""

    wrapper: int
    when: str
    """``evaluation``, ``save`` or ``end``."""
    time: float
    digests: Mapping[str, str] = field(default_factory=dict)
    at: Where | None = None
