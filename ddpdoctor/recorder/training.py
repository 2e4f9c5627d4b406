"""What the patches of training know together: wrappers, parameters, the current training step, where time went."""

from __future__ import annotations

import mmap
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .digest import digests, is_captured
from .digest import named as by_name
from .events import training as events
from .events.training import Buffers, DetailedStep, Progress
from .keys import Keys
from .patch import own_time
from .sampling import CHECKED, WATCHED
from .session import Part, Session
from .waiting import Waits
from .where import Where

_MOST_FIRSTS = 8
"""Optimizers and wrappers whose first steps are written down in full."""
_PROGRESS_SECONDS = 1.0
_PROGRESS_SHARE = 0.01
"""Of the time so far: a run of days tells of its progress a thousand times, not a hundred thousand."""
_OF_A_TENSOR = 4000
"""Bytes that take as long to read as to come to a tensor."""
_DEVICE_SPEED = 50
"""How many times faster than a CPU other devices read memory."""


@dataclass
class Wrapper:
    """A DistributedDataParallel of this process."""

    index: int
    ref: weakref.ref[Any]
    group: Any
    trainable: dict[int, weakref.ref[Any]]
    """Its reducer's parameters by id."""
    depth: int = 0
    """Above 0 while its forward, or one around it, is under way."""
    armed: bool = False
    """Whether its reducer waits for a backward."""
    evaluated: int = -1
    """The training step before which its buffers were last looked at for evaluation."""
    written: float = 0.0
    """When a forward without autograd was last written down."""
    counted: int = 0
    """The iteration that DDP last kept count of unused parameters in, as far as was written down."""
    event: events.Wrapper | None = None
    """What was written down of it."""
    trained: int = 0
    """Its forwards of training that were looked at."""
    eval_at: Where | None = None
    """Where it was last put into eval mode."""
    around: set[Where | None] = field(default_factory=set)
    """Lines from which parts of it were called around it since the last backward."""


class Training(Part):
    """Shared state; one for each session."""

    wants_loss = False
    """Whether the loss of the next backward is to be looked at."""
    constructed = 0
    """Wrappers whose construction began."""
    joined = 0
    """Contexts of Join that are open."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.keys, self.loss = Keys(session.torch), LatestLoss(session.torch)
        self.sampling = WATCHED if session.options.watched else CHECKED
        self.wrappers: list[Wrapper] = []
        self.backwards = 0
        """Backwards of this training step."""
        self.in_backward = 0
        self.busy = 0
        """Forwards of wrappers, or around them, and backwards that are under way."""
        self.updated = False
        """Whether an optimizer has stepped and no new training step has begun."""
        self.when_looking: list[Callable[..., object]] = []
        """Called with ``looking`` where calls of the parts of models begin or cease to be looked at."""
        self.looking = True
        """Whether they are: in steps that are written down in full, and later only between forwards and backwards."""
        self.quiet = False
        """Whether the current training step, or the next where one has been made, is counted only."""
        self.own_collectives: dict[int, int] = defaultdict(int)
        """What others than reducers added to a group's sequence number during this backward, by the group's id."""
        self.collectives = 0
        """How many the script issued."""
        self.gathered: set[int] = set()
        """Lengths of what all_gather returned in this step for tensors that carry a gradient."""
        self.hooks: set[Any] = set()
        """Code of communication hooks: the collectives in there are the reducer's."""
        self.means: list[events.MeanLoss] = []  # that functions of torch took since the last backward
        self.exchanged: dict[int, Any] = {}
        """Parameters of this training step, by id, whose gradients a collective was given, or whose norm was taken."""
        self.counted = False  # whether numbers were summed over the ranks in this training step
        self.not_waited_for: list[int] = []
        """Collectives that the script began, which fill gradients or parameters, since it last waited for any."""
        self.optimizers: weakref.WeakKeyDictionary[Any, Where | None] = weakref.WeakKeyDictionary()
        """Those that were made, and where."""
        self.ended: Counter[int] = Counter()
        """Training steps that each optimizer ended since the last wrapper was constructed, by its index."""
        self._first = self._firsts = 0
        """The training step from which steps are sampled anew, and how often there was one."""
        self.scales: list[float] = []
        """Scales of the GradScalers in use since the last backward."""
        self._by_id: dict[int, Wrapper] = {}
        self._totals: dict[str, float] = defaultdict(float)
        """Seconds by phase, of training steps that are written down in full."""
        self._until: dict[str, float] = {}
        """The same as it was when the training step began."""
        self.waits = Waits(self)
        self._updated_at: float | None = None
        self._wakes = 0
        """Until how many training steps they are counted only."""
        self._began = time.monotonic()
        self._tells_at = self._began + _PROGRESS_SECONDS

    def add(self, ddp: Any, wrapper: Wrapper) -> None:
        """Know a wrapper from now on."""
        self.wrappers.append(wrapper)
        self.ended.clear()
        self.begin_anew()
        self._by_id[id(ddp)] = wrapper

    def wrapper(self, ddp: Any) -> Wrapper | None:
        """What is known of a wrapper; None of one that was copied, not constructed."""
        wrapper = self._by_id.get(id(ddp))
        return wrapper if wrapper and wrapper.ref() is ddp else None

    def living(self) -> list[tuple[Wrapper, Any]]:
        """The wrappers that still exist."""
        return [(wrapper, ddp) for wrapper in self.wrappers if (ddp := wrapper.ref()) is not None]

    def held(self) -> list[Any]:
        """The parameters of all optimizers that were made and still exist."""
        return [parameter for optimizer in self.optimizers for parameter in parameters_of(optimizer)]

    def wrapped(self) -> list[Any]:
        """The parameters of all reducers that still exist."""
        refs = [ref for wrapper in self.wrappers for ref in wrapper.trainable.values()]
        return [parameter for ref in refs if (parameter := ref()) is not None]

    @property
    def number(self) -> int:
        """The current training step's, since an optimizer or a wrapper was new: what is looked at goes by it. A rank
        may train something by itself before the others begin; what they do together has one number then."""
        return self.session.steps - self._first

    @property
    def is_early(self) -> bool:
        """Whether this is one of the first training steps, which are all written down in full."""
        return self.number < self.sampling.early

    @property
    def is_digested(self) -> bool:
        """Whether this training step has digests, random streams and layers, too."""
        return self.sampling.is_digested(self.number)

    def begin_anew(self) -> None:
        """Something new is trained: look at its first steps."""
        if self._firsts < _MOST_FIRSTS:
            self._firsts += 1
            self._first = self.session.steps
            self._wakes = 0

    def open_step(self) -> None:
        """Begin the next training step: the first forward, loss or backward after an update."""
        self.updated = False
        self.backwards = 0
        self.gathered.clear()
        self.exchanged.clear()
        self.counted = False
        detailed = self.sampling.is_detailed(self.number) and not is_captured(self.torch)
        if detailed and not self.session.detailed:
            self.session.event(DetailedStep(self.session.steps))
        self.session.detailed = detailed
        for opened in self.session.when_opened:
            opened()
        if self.is_early or not detailed:  # else from the end of the first forward on
            self.look_at_parts(looking=detailed)

    def look_at_parts(self, *, looking: bool) -> None:
        """Begin or cease to look at calls of the parts of models."""
        if looking is not self.looking:
            self.looking = looking
            for switch in self.when_looking:
                switch(looking=looking)

    def enter(self) -> None:
        """A forward or a backward begins, in a step that may be written down in full."""
        self.busy += 1
        if self.looking and not self.is_early:
            self.look_at_parts(looking=False)

    def leave(self) -> None:
        self.busy -= 1
        if not (self.busy or self.looking) and self.session.detailed:
            self.look_at_parts(looking=True)

    def close_step(self, optimizer: int) -> tuple[int, dict[str, float] | None]:
        """An optimizer has stepped: the step's number and, at the first update in one that is detailed, its phases."""
        if self.updated:
            return self.session.steps - 1, None
        self.updated = True
        self.ended[optimizer] += 1
        self.session.steps += 1
        self.session.thread = threading.get_ident()
        now = time.monotonic()
        if now >= self._tells_at:
            self.tell_progress()
        if self.session.steps < self._wakes:
            self._begin_quietly()
            return self.session.steps - 1, None
        totals, until = self._totals, self._until
        totals["cpu_wait"] = self.waits.queue.seconds() - self.waits.queued
        totals["waits"], totals["recorder"] = self.waits.total, own_time.total()
        if self._updated_at is not None:
            totals["total"] += now - self._updated_at
        self._updated_at = now
        self._until = totals.copy()
        self.quiet = not self.session.detailed and not self.sampling.is_detailed(self.number)
        self._wakes = self._first + self.sampling.next_detailed(self.number) if self.quiet else 0
        own_time.thread = 0 if self.quiet else threading.get_ident()
        if self.quiet:
            self._begin_quietly()
        phases = None
        if self.session.detailed:
            spent = {name: seconds - until.get(name, 0.0) for name, seconds in totals.items()}
            phases = {name: round(seconds, 6) for name, seconds in spent.items()}
        return self.session.steps - 1, phases

    def _begin_quietly(self) -> None:
        if not self.session.options.full:
            for opened in self.session.when_opened:
                opened()

    def spend(self, phase: str, seconds: float, idle: float) -> None:
        """Add to the time of a phase, without what it waited for other ranks and for a CPU, and without ours; ``idle``
        is what ``waits.idle()`` was when it began."""
        self._totals[phase] += max(0.0, seconds - (self.waits.idle() - idle))

    def tell_progress(self) -> None:
        """Write down how far it has come."""
        now = time.monotonic()
        self._tells_at = now + max(_PROGRESS_SECONDS, _PROGRESS_SHARE * (now - self._began))
        done = self.session.steps, self.session.backwards, self.collectives
        waited, memory = round(self.session.waited, 6), _own_memory()
        told = Progress(*done, round(now, 3), waited, memory, self.loss.take())
        self.session.event(told, now=True)  # also where the record is as large as it may be
        self.wants_loss = self.loss.is_wanted


class TrainingPart(Part):
    """A part that goes by where training stands."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.training = Training.of(session)


def _own_memory() -> int:
    """Bytes that this process holds and shares with no other, files apart; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * mmap.PAGESIZE


def sequence_number(group: Any) -> int | None:
    """How many collectives a process group has issued; None where its backend does not count."""
    try:
        return int(group._get_sequence_number_for_group())
    except (RuntimeError, AttributeError, TypeError):
        return None


def parameters_of(optimizer: Any) -> Iterator[Any]:
    """The parameters of all its groups."""
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


class DigestBudget:
    """Which steps of an optimizer have digests: the same on every rank, and the fewer the larger the model."""

    def __init__(self, *, full: bool, device: str) -> None:
        speed = 1 if device == "cpu" else _DEVICE_SPEED
        # Bytes at once and bytes a step: a checksum reads 1 to 2 GB/s, and in a run of days all that the recorder
        # does may take 0.2 ms of a step of 10.
        self._left, self._rate = (24e6 * speed, 1e4 * speed) if full else (512e6 * speed, 4e6 * speed)
        self._taken = 0
        self._last = 0

    def take(self, step: int, tensors: Sequence[Any], times: int) -> bool:
        """Whether a step that may have digests gets them; each of these tensors would be read so many times."""
        self._left += self._rate * max(0, step - self._last)
        self._last = step
        size = times * sum(_OF_A_TENSOR + tensor.numel() * tensor.element_size() for tensor in tensors)
        if size > self._left and self._taken >= 2:
            return False
        self._left -= size
        self._taken += 1
        return True


def tell_buffers(
    session: Session, when: str, *, at: Where | None = None, only: Wrapper | None = None
) -> None:
    """Write down the digests of all buffers, or of one wrapper's; ``when`` is evaluation, save or end."""
    training = Training.of(session)
    for wrapper, ddp in training.living():
        if only is None or wrapper is only:
            named = [(name.replace("_orig_mod.", ""), buffer) for name, buffer in ddp.module.named_buffers()]
            if named and not (when == "end" and _is_busy(training.torch, named)):
                values = digests(training.torch, [buffer for _, buffer in named])
                of_buffers = by_name((name for name, _ in named), values)
                session.event(Buffers(wrapper.index, when, time.monotonic(), of_buffers, at))


def _is_busy(torch: Any, named: list[tuple[str, Any]]) -> bool:
    """Whether reading would wait for a device, which at the end may be for ever."""
    return any(it.device.type == "cuda" for _, it in named) and not torch.cuda.current_stream().query()


class LatestLoss:
    """The newest loss of a backward that has come from its device, for which the training never waits."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.value: float | None = None
        self._page: Any = None
        """Memory that a GPU writes to by itself."""
        self._sent: tuple[Any, float] | None = None
        """The event that follows the copy, and what the loss was scaled by."""

    def copy(self, loss: Any, scale: float) -> None:
        """Let the GPU copy a loss of one number behind the work that it has been given."""
        torch = self._torch
        if self._page is None:
            self._page = torch.empty((), dtype=torch.float64, pin_memory=True)
        with torch.cuda.device(loss.device):
            self._page.copy_(loss.reshape(()), non_blocking=True)
            self._sent = torch.cuda.Event(), scale
            self._sent[0].record()

    def take(self) -> float | None:
        """The value that has come since the last call, None where none has or it is not finite."""
        value, self.value = self.value, None
        if self._sent is not None and self._sent[0].query():
            value, self._sent = float(self._page) / self._sent[1], None
            value = value if abs(value) < float("inf") else None
        return value

    @property
    def is_wanted(self) -> bool:
        """Whether no loss is on its way, whose page another one would overwrite."""
        return self._sent is None
