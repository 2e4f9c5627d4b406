"""Collectives that the script issues through torch.distributed: what, over which group, on which tensor.

What torch issues itself (DistributedDataParallel, SyncBatchNorm, Join, object collectives inside) is not the
script's; inside a backward it is counted, so that what a reducer issued can be told.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from traceback import walk_stack
from types import FrameType
from typing import Any

from ..digest import few, is_plain, unseen
from ..events.training import Collective
from ..operations import BY_NAME, Kind, names
from ..patch import IN_FULL, Args, Kwargs, Make, caller, guarded, watch
from ..session import Session
from ..training import TrainingPart, sequence_number
from ..where import Where

_RECORDER = f"{__name__.partition('.patches.')[0]}."
_PLACES = (
    (("torch.distributed.distributed_c10d", "torch.distributed"), "core", False),
    (("torch.distributed.nn.functional", "torch.distributed.nn"), "nn", True),
    (("torch.distributed._functional_collectives",), "functional", False),
)
"""Modules that have functions, which ones in the table of operations, and whether gradients pass through them."""
_REDUCERS = ("torch.nn.parallel.", "torch.distributed.algorithms.ddp_comm_hooks")
_TENSORS = ("tensor", "input_tensor", "input", "tensors", "input_list", "gather_list", "obj", "object_list")
_PEERS = ("src", "dst", "group_src", "group_dst")
_MOST = 20_000
"""Collectives that are written down; of one line the first, and then those that come seldom."""
_MOST_OF_LINE = 64
_SELDOM = 0.1
_LONG = 0.2
"""Seconds; one that is under way for longer is told before it ends."""


_MOST_SUMMED = 4
"""Numbers that are written down of what a rank gives and gets: counts, and sums of losses and hits."""
_FEWEST = 2
"""Values; one alone stands in many tensors by chance."""


class _OpenCollective:
    __slots__ = ("event", "fills_own", "group", "idle", "is_told", "summed", "waits")

    def __init__(self, event: Collective, group: Any) -> None:
        self.event, self.group = event, group
        self.fills_own = False
        """Whether it fills a gradient or a parameter itself, not a copy."""
        self.is_told = False
        """Whether its end is written down."""
        self.summed: Any = None
        """The tensor, where it has a few numbers that are summed."""
        self.waits, self.idle = False, 0.0


class _Collectives(TrainingPart):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.depth = 0
        self.written = 0
        self.numbers: dict[int, int] = {}
        self.lines: dict[Any, list[float]] = {}
        self.shapes: dict[Any, tuple[int, ...] | None] = {}
        """Of what was given last, by line and name."""
        self.counts_own = False
        """Whether a call inside a backward is under way: one call may lead to another, as it does in a rehearsal."""
        self.open: _OpenCollective | None = None
        """What the main thread is in, as far as it is not written down that it has begun."""
        session.writer.ticks.append(guarded(self.tell_open))

    def begin(
        self, name: str, caller: FrameType, args: Any, kwargs: Any, differentiable: bool
    ) -> _OpenCollective | None:
        """A function is called; None where that is not the script's doing."""
        # A joined rank runs the communication hooks of the others outside of any backward.
        if self.depth or not _is_scripts(caller) or caller.f_code in self.training.hooks:
            return None
        self.training.collectives += 1
        group = self._group(args, kwargs)
        # Every rank of a group makes the same calls, those between two ranks apart.
        counted = int(BY_NAME[name].kind is not Kind.PAIR)
        number = self.numbers[id(group)] = self.numbers.get(id(group), -1) + counted
        self.depth += 1
        at, began = self.session.here(), time.monotonic()
        event = Collective(began, at, name, number=number, ended=False, id=self.training.collectives)
        call = self.open = _OpenCollective(event, group)
        if self._is_told(at, name):
            event.differentiable = differentiable
            self._look(call, args, kwargs)
            # At once: where ranks disagree, gloo ends the process in here, mostly at a line's first time, or at its
            # first with tensors of this size.
            self._describe(call)
            if self.shapes.get((at, name), at) != event.shape:
                self.shapes[at, name] = event.shape
                self.session.event(event, now=True)
            event.time = time.monotonic()
        call.idle = self.training.waits.idle()
        call.waits = self.training.waits.begin()
        return call

    def _describe(self, call: _OpenCollective) -> None:
        """Say over which group it is, since it is to be written down."""
        call.is_told = True
        if call.group is not None:
            call.event.group = tuple(self.torch.distributed.get_process_group_ranks(call.group))
            call.event.group_name = getattr(call.group, "group_name", "")

    def tell_open(self) -> None:
        """Write down a collective that takes long: where the job stands still, it is the one that does not end."""
        if (call := self.open) is not None and time.monotonic() - call.event.time > _LONG:
            self.open = None
            self._describe(call)  # its end has to be told as well
            self.session.event(call.event)

    def _is_told(self, at: Where | None, name: str) -> bool:
        """A line that comes often is written down in detailed steps only, after its first times."""
        line = self.lines.setdefault((at, name), [0, 0.0])
        now, last = time.monotonic(), line[1]
        line[0] += 1
        line[1] = now
        often = line[0] > _MOST_OF_LINE and now - last < _SELDOM
        return self.written < _MOST and (not often or (self.session.detailed and self.session.steps > 0))

    def _look(self, call: _OpenCollective, args: Any, kwargs: Any) -> None:
        event = call.event
        operation, tensor = BY_NAME[event.operation], self._given(event.operation, args, kwargs)
        peer = next((kwargs[key] for key in _PEERS if key in kwargs), None)
        if peer is None and operation.peer:
            peer = args[1] if len(args) > 1 else None
        event.peer = peer if isinstance(peer, int) else None
        event.reduce = self._operation(args, kwargs) if operation.reduces else None
        if tensor is not None:
            event.shape, event.dtype = tuple(tensor.shape), str(tensor.dtype).replace("torch.", "")
            self._look_at(call, tensor)
            if event.operation == "all_reduce" and event.reduce == "sum":
                self._note_numbers(call, tensor)
            if "gather" in event.operation and tensor.requires_grad:
                # Under no_grad, too.
                event.requires_grad = event.requires_grad or not self._is_in_function()
                if tensor.dim():
                    size = self.torch.distributed.get_world_size(kwargs.get("group"))
                    self.training.gathered.add(int(tensor.shape[0]) * size)

    def _given(self, name: str, args: Any, kwargs: Any) -> Any:
        """The tensor that the rank gives."""
        listed = [*(args[1:2] if BY_NAME[name].output_first and len(args) > 1 else ()), *args]
        for value in (*listed, *(kwargs[key] for key in _TENSORS if key in kwargs)):
            first = value[0] if isinstance(value, list | tuple) and value else value
            first = first.tensor if type(first).__name__ == "P2POp" else first
            if isinstance(first, self.torch.Tensor):
                return first
        return None

    def _look_at(self, call: _OpenCollective, tensor: Any) -> None:
        """Whether it carries a gradient, or is one, or is a parameter."""
        event = call.event
        event.requires_grad = bool(tensor.requires_grad and self.torch.is_grad_enabled())
        parameter, is_gradient = self._parameter(tensor)
        if parameter is not None and is_gradient:
            event.gradient_of = self._key(parameter)
            self.training.exchanged[id(parameter)] = parameter
            with unseen(self.torch):
                event.norm = float(parameter.grad.norm())
        elif parameter is not None:
            event.weight_of = self._key(parameter)
        operation = BY_NAME[event.operation]
        if parameter is not None and operation.fills and not operation.output_first:
            own = parameter.grad if is_gradient else parameter
            call.fills_own = bool(own.data_ptr() == tensor.data_ptr())

    def _note_numbers(self, call: _OpenCollective, tensor: Any) -> None:
        is_small = 0 < tensor.numel() <= _MOST_SUMMED and not tensor.is_complex()
        # To read from a device waits for it.
        is_at_hand = tensor.device.type == "cpu" or self.training.is_digested
        if is_small and is_at_hand and is_plain(self.torch, tensor):
            call.summed = tensor
            self.training.counted = True
            with unseen(self.torch):
                call.event.given = few(tensor)

    def _is_in_function(self) -> bool:
        """Whether an autograd.Function calls it, whose own backward may bring the gradient."""
        if self.torch.is_grad_enabled():
            return False
        kinds, codes = [self.torch.autograd.Function], set()
        while kinds:
            kind = kinds.pop()
            kinds += kind.__subclasses__()
            codes.add(getattr(kind.forward, "__code__", None))
        # Its apply has no frame of its own from torch 2.14 on.
        return any(frame.f_code in codes for frame, _ in walk_stack(sys._getframe(1)))

    def _parameter(self, tensor: Any) -> tuple[Any, bool]:
        """The parameter whose memory this is, or of which it begins with a copy; and whether it is the gradient's."""
        if not is_plain(self.torch, tensor) or not tensor.numel():
            return None, False
        address, size = tensor.data_ptr(), tensor.numel()
        known = (*self.training.held(), *self.training.wrapped())
        plain = [parameter for parameter in known if is_plain(self.torch, parameter)]
        for parameter in plain:
            if parameter.numel() != size:
                continue
            if parameter.data_ptr() == address:
                return parameter, False
            if parameter.grad is not None and parameter.grad.data_ptr() == address:
                return parameter, True
        if tensor.dim() != 1:
            return None, False
        flat = _first_inside(self.torch, tensor, [(p, p.grad) for p in plain if p.grad is not None])
        if flat is not None:
            return flat, True
        return _first_inside(self.torch, tensor, [(p, p) for p in plain]), False

    def _key(self, parameter: Any) -> str | None:
        keys = self.training.keys
        if keys.get(parameter) is None:
            for optimizer in self.training.optimizers:
                groups = [group["params"] for group in optimizer.param_groups]
                if any(parameter is member for group in groups for member in group):
                    keys.of_groups(groups)
        return keys.get(parameter)

    def _operation(self, args: Any, kwargs: Any) -> str:
        given = [value for value in args if type(value).__name__ in ("ReduceOp", "RedOpType")]
        op = kwargs.get("op", given[0] if given else None)
        return "sum" if op is None else str(op).rpartition(".")[2].strip("<>:0123456789 ").lower()

    def _group(self, args: Any, kwargs: Any) -> Any:
        """The process group that was given; None for the default group."""
        dist = self.torch.distributed
        given = [value for value in (*args, kwargs.get("group")) if isinstance(value, dist.ProcessGroup)]
        return given[0] if given and given[0] is not dist.group.WORLD else None

    def end(self, call: _OpenCollective, result: Any, _: BaseException | None) -> None:
        self.depth -= 1
        self.open = None
        if call.waits:
            self.training.waits.end()
        event = call.event
        seconds = time.monotonic() - event.time
        self.training.spend("collective", seconds, call.idle)
        if not hasattr(result, "get_future"):  # no work to wait for: it is done, and what was begun before it
            self.waited()
        elif call.fills_own and self.session.detailed:
            self.training.not_waited_for.append(event.id)
        if call.summed is not None and not hasattr(result, "get_future"):
            with unseen(self.torch):
                event.got = few(call.summed)
        if call.is_told:
            self.written += 1
            event.seconds, event.ended = round(seconds, 6), True
            self.session.event(event)

    def waited(self, *_: Any) -> None:
        """The script waits for a work, or asks whether it is done; in which order works end is left to it."""
        self.training.not_waited_for.clear()

    def begin_wait(self, *_: Any) -> bool | None:
        self.waited()
        return self.training.waits.begin() or None

    def before_own(self, args: Any, kwargs: Any, caller: FrameType) -> Any:
        """A call inside a backward that is not the reducer's: what it adds to its group's number is taken off."""
        if self.counts_own or not self.session.detailed:
            return None
        for frame, _ in islice(walk_stack(caller), 20):
            is_hooks = frame.f_code in self.training.hooks
            if is_hooks or str(frame.f_globals.get("__name__", "")).startswith(_REDUCERS):
                return None
        group = self._group(args, kwargs) or self.torch.distributed.group.WORLD
        begun = group, sequence_number(group)
        self.counts_own = True
        return begun

    def after_own(self, begun: Any) -> None:
        self.counts_own = False
        group, number = begun
        now = sequence_number(group)
        if number is not None and now is not None:
            self.training.own_collectives[id(group)] += now - number


def _is_scripts(caller: FrameType) -> bool:
    """Whether the caller is not torch itself, helpers that average parameters for the script apart. Nor is it a
    rehearsal, through which a call that torch issued comes here once more."""
    module = str(caller.f_globals.get("__name__", ""))
    return not module.startswith(("torch.", _RECORDER)) or "model_averaging" in module


def install(session: Session) -> None:
    """Watch torch.distributed's functions, and others that lead to them once the script imports them."""
    if session.torch.distributed.is_available():
        collectives = _Collectives(session)
        for row in _PLACES:
            session.when_imported(row[0][0], functools.partial(_patch, collectives, *row))
        _watch_waits(collectives)


def _watch_waits(collectives: _Collectives) -> None:
    """Watch what tells that a call has ended that the script began and did not wait for at once, in detailed steps."""
    session, torch, briefly = collectives.session, collectives.torch, collectives.session.unless_detailed
    waits = watch(torch, collectives.begin_wait, lambda *_: collectives.training.waits.end(), briefly)
    session.patch(torch.distributed.Work, "wait", waits)
    asks = watch(torch, collectives.waited, brief=briefly)
    for name in ("get_future", "is_completed", "synchronize", "block_current_stream"):
        session.patch(torch.distributed.Work, name, asks)
    session.patch(torch.cuda, "synchronize", asks)


def _patch(collectives: _Collectives, modules: tuple[str, ...], place: str, differentiable: bool) -> None:
    for name in names(place):
        collectives.session.patch_function(modules, name, _watch(collectives, name, differentiable))


def _watch(collectives: _Collectives, name: str, differentiable: bool) -> Make:
    before_own, after_own = guarded(collectives.before_own), guarded(collectives.after_own)
    training = collectives.training

    def in_backward(original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        if not training.in_backward:
            return IN_FULL
        issued = before_own(args, kwargs, caller())
        try:
            return original(*args, **kwargs)
        finally:
            if issued is not None:
                after_own(issued)

    def begin(args: Args, kwargs: Kwargs) -> _OpenCollective | None:
        return collectives.begin(name, caller(), args, kwargs, differentiable)

    return watch(collectives.torch, begin, collectives.end, in_backward)


def _first_inside(torch: Any, tensor: Any, held: Sequence[tuple[Any, Any]]) -> Any:
    """The parameter whose values a tensor begins with that holds those of all, as a copy of all gradients or weights
    that is reduced in one go; None where it does not. They are in the order of their optimizer or wrapper, some twice.
    """
    known = list({id(parameter): (parameter, values) for parameter, values in held}.values())
    if tensor.numel() != sum(values.numel() for _, values in known):
        return None
    # Scripts take them from the first to the last or, as DDP's buckets do, from the last to the first.
    ends = known[:1] + known[-1:]
    return next((parameter for parameter, values in ends if _begins_with(torch, tensor, values)), None)


def _begins_with(torch: Any, tensor: Any, first: Any) -> bool:
    if first.layout is not torch.strided or first.dtype != tensor.dtype or first.device != tensor.device:
        return False
    with unseen(torch):
        values = first.detach().reshape(-1)
        enough = values.numel() >= min(_FEWEST, tensor.numel()) and bool(values.any())
        return enough and bool(torch.equal(tensor.detach()[: values.numel()], values))
