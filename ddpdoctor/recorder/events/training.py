"""Training: wrappers, forwards, backwards and collectives; what updates the weights is in ``updates``.

Parameters go by a *key*: the name in the wrapped module; ``name (wrapper 1)`` for those of a second wrapper;
``Class.name`` for those that no wrapper knows. A key means the same on every rank. Digests are short strings,
equal where the bits are equal; None stands for what was not taken, since digests are taken at the first steps
and then at growing intervals.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..where import Where
from .schema import Event


@dataclass(frozen=True)
class Parameter:
    """A parameter of a wrapped module, as it was when it was wrapped."""

    key: str
    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool = True
    device: str = "cpu"


@dataclass(slots=True)
class Wrapper(Event):
    """A DistributedDataParallel that was constructed."""

    KEY: ClassVar[str] = "id"

    index: int
    """In order of construction, which is the same on every rank of a right program."""
    at: Where | None
    time: float
    module: str
    """The class of the wrapped module."""
    parameters: tuple[Parameter, ...] = ()
    buffers: tuple[str, ...] = ()
    """Names of the module's buffers."""
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
    id: int = 0
    """Which construction it is; one that failed leaves its index to the next."""
    library: str = ""
    """The module of the library that the script called to have it wrapped; empty where it did so itself."""

    @property
    def trained(self) -> tuple[str, ...]:
        """The parameters that require a gradient."""
        return tuple(parameter.key for parameter in self.parameters if parameter.requires_grad)


@dataclass(slots=True)
class Conversion(Event):
    """A call of ``SyncBatchNorm.convert_sync_batchnorm``."""

    time: float
    at: Where | None
    layers: int = 0
    """How many BatchNorm layers it found."""
    wrapped: bool = False
    """Whether the module was a wrapper, or inside one, already."""


@dataclass(slots=True)
class Forward(Event):
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
    """How many BatchNorm layers, SyncBatchNorm apart, are in train mode; of a forward without autograd those that it
    changes. None where it was not looked at."""
    unused: int | None = None
    """Bytes of parameters that this rank left unused in the last step that DDP kept count of, where it is a new one."""
    evaluating: tuple[str, ...] | None = None
    """The outermost modules in which all that act by their mode are in eval mode, ``("",)`` for the whole model; None
    where it was not looked at, or none acts by its mode."""
    eval_at: Where | None = None
    """Where the model was last put into eval mode, where any of it is."""


@dataclass(frozen=True)
class Draws:
    """How one global random stream moved."""

    began: str
    """Digest of its state before."""
    ended: str
    numbers: int
    """How many numbers of 32 bits were drawn; 624 where it made new ones in advance meanwhile, or does not tell."""


@dataclass(slots=True)
class Drawn(Event):
    """What a training step drew from the global random streams, between two places of it."""

    at: Where | None
    """The forward that came next, or was it, or the update."""
    inside: bool
    """Whether the forward itself drew."""
    streams: Mapping[str, Draws] = field(default_factory=dict)
    """Those that moved: ``torch``, ``numpy``, ``cuda``."""


@dataclass(slots=True)
class DrawnBetween(Event):
    """What was drawn between an update and the forward after it where no DataLoader gave a batch: data, mostly."""

    at: Where | None
    """The forward."""
    streams: tuple[str, ...]
    """``torch``, ``numpy``, ``python``, ``cuda``."""


@dataclass(slots=True)
class Backward(Event):
    """A backward that the script started."""

    time: float
    at: Where | None
    reduced: tuple[int, ...] = ()
    """The wrappers whose reducer all-reduced gradients during it."""
    missed: tuple[int, ...] = field(default=(), kw_only=True)
    """The wrappers whose reducer waited for it and whose parameters it did not come to."""
    anew: bool = field(default=False, kw_only=True)
    """Whether wrapped parameters had no gradient that it would be added to."""
    collectives: int = 0
    """How many collectives the default group counted during it, DDP's own included."""
    seconds: float = 0.0
    factor: float | None = None
    """What the loss was multiplied by last, a GradScaler's scale apart: 0.25 where it was divided by 4; None where
    that cannot be told."""
    loss: str | None = None
    """Digest of the loss."""
    value: float | None = None
    """The loss, a GradScaler's scale apart, where it has a digest and is one finite number."""
    finite: bool | None = None
    """Whether the loss is finite; None where it was not looked at."""
    gathered: bool | None = None
    """Whether the graph of the loss holds tensors as long as what all_gather returned before in this step; None
    where nothing that carries a gradient was gathered, or torch does not tell."""
    norms: Mapping[str, float] = field(default_factory=dict)
    """The norm of one gradient that DDP has averaged, in a step in which numbers were summed over the ranks before."""


@dataclass(slots=True)
class GradientCall(Event):
    """A call of ``torch.autograd.grad`` for gradients of wrapped parameters, which no reducer hears of."""

    time: float
    at: Where | None
    tensors: int = 0
    """How many gradients it asked for."""


@dataclass(slots=True)
class ForwardWeights(Event):
    """The weights that a forward of a wrapper was computed with, before any optimizer of torch took a step."""

    wrapper: int
    number: int
    """Which training forward of this wrapper it is, from 1."""
    time: float
    at: Where | None
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the wrapped parameters."""


@dataclass(slots=True)
class MeanLoss(Event):
    """A loss that divides by a count of its own, or a sum that it may divide by a count of all ranks."""

    at: Where | None
    function: str | None
    """None where the script divides a sum by hand; then ``at`` is its backward."""
    count: int
    """The denominator: targets that are not ignored, or elements."""
    ignored: int | None = None
    """The target that does not count, where some targets were it."""
    factor: float = 1.0
    """What it is multiplied by besides, as the loss is that a script scales by its own count."""
    is_sum: bool = False
    """Whether it is the sum over that count, not divided by it."""

    @property
    def weight(self) -> float:
        """What one element is multiplied by."""
        return self.factor / (1 if self.is_sum else max(1, self.count))

    def is_like(self, other: "MeanLoss") -> bool:
        """Whether it is the same loss of another rank or micro-batch."""
        return (self.at, self.function, self.is_sum) == (other.at, other.function, other.is_sum)


@dataclass(slots=True)
class Collective(Event):
    """A collective that the script issued through torch.distributed."""

    KEY: ClassVar[str] = "id"

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
    id: int = 0
    """Which one it is of all that this process issued."""
    group_name: str = ""
    """Of a group that is not the default one, as torch names it, on every rank alike; groups may have equal members."""
    given: tuple[float, ...] = ()
    """The numbers that this rank gave, where an ``all_reduce`` sums a few."""
    got: tuple[float, ...] = ()
    """Their sums over the ranks; empty where the call only began."""


@dataclass(slots=True)
class CopyForward(Event):
    """A copy of a wrapped module, an average of its weights for instance, at a forward that does not train it."""

    wrapper: int
    """The wrapper whose parameters have the same names and shapes."""
    number: int
    """Which copy, in order of first use."""
    time: float
    at: Where | None
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of its parameters and buffers."""


@dataclass(slots=True)
class Buffers(Event):
    """The buffers of a wrapped module at a moment when they count."""

    wrapper: int
    when: str
    """``evaluation``, ``save`` or ``end``."""
    time: float
    digests: Mapping[str, str] = field(default_factory=dict)
    at: Where | None = None


@dataclass(slots=True)
class DetailedStep(Event):
    """A training step begins that is written down in full, after some that were not."""

    number: int


@dataclass(slots=True)
class LineTime:
    """Seconds at a line of the script, which called whatever took them."""

    at: Where
    seconds: float


@dataclass(slots=True)
class LineTimes(Event):
    """Where the thread that trains was between two updates, as looked at now and then; without waits for others."""

    step: int
    lines: tuple[LineTime, ...] = ()


@dataclass(slots=True)
class Progress(Event):
    """How far the script has come, all steps counted."""

    steps: int
    backwards: int = 0
    collectives: int = 0
    time: float = 0.0
    waited: float = 0.0
    """Seconds for batches, so far."""
    memory: int = 0
    """Bytes of its own that the process holds."""
    loss: float | None = None
    """Of a backward since it last told of its progress."""


@dataclass(slots=True)
class GatheredForMetrics(Event):
    """A line that gathered what a metric needs, without samples that were repeated; written down once."""

    time: float
    at: Where | None
