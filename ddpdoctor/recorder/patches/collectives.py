"""Collectives that the script issues through torch.distributed: what, over which group, on which tensor.

What torch issues itself (DistributedDataParallel, SyncBatchNorm, Join, object collectives inside) is not the
script's; inside a backward it is counted, so that what a reducer issued can be told.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from ..digest import is_plain, unseen
from ..events.training import Collective
from ..operations import BY_NAME, Kind, names
from ..patch import guarded, leave_out
from ..session import Session
from ..training import TrainingPart
from ..where import Where
from .backward import sequence_number

_RECORDER = f"{__name__.partition('.patches.')[0]}."
_MODULES = ("torch.distributed.distributed_c10d", "torch.distributed")
_DIFFERENTIABLE = "torch.distributed.nn.functional"
_FUNCTIONAL = "torch.distributed._functional_collectives"
_TENSORS = ("tensor", "input_tensor", "input", "tensors", "input_list", "gather_list", "obj", "object_list")
_PEERS = ("src", "dst", "group_src", "group_dst")
_MOST = 20_000
"""Collectives that are written down; of one line the first, and then those that come seldom."""
_MOST_OF_LINE = 64
_SELDOM = 0.1
_LONG = 0.2
"""Seconds; one that is under way for longer is told before it ends."""


_FEWEST = 2
"""Values; one alone stands in many tensors by chance."""


class _OpenCollective:
    """A collective that is under way."""

    __slots__ = ("at", "began", "event", "group", "id", "idle", "name", "number", "waits")

    def __init__(self, name: str, group: Any, at: Where | None, number: int, id: int) -> None:
        self.name, self.group, self.at, self.number, self.id = name, group, at, number, id
        self.began = time.monotonic()
        self.event: Collective | None = None
        """What is written down of it."""
        self.waits, self.idle = False, 0.0


class _Collectives(TrainingPart):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.depth = 0
        self.written = 0
        self.numbers: dict[int, int] = {}
        self.lines: dict[Any, list[float]] = {}
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
        call = self.open = _OpenCollective(
            name, group, self.session.here(), number, self.training.collectives
        )
        if self._is_told(call.at, name):
            call.event = self._event(call, self._look(name, args, kwargs, differentiable))
            if self.lines[call.at, name][0] == 1:
                # At once: where ranks disagree, gloo ends the process in here, and at a line's first time mostly.
                self.session.event(call.event, now=True)
            call.began = time.monotonic()
        call.idle = self.training.waits.idle()
        call.waits = self.training.waits.begin()
        return call

    def _event(self, call: _OpenCollective, fields: dict[str, Any]) -> Collective:
        members = None if call.group is None else self.torch.distributed.get_process_group_ranks(call.group)
        group = None if members is None else tuple(members)
        about = {"number": call.number, "ended": False, "id": call.id, **fields}
        if group is not None:
            about["group_name"] = getattr(call.group, "group_name", "")
        return Collective(call.began, call.at, call.name, group, **about)

    def tell_open(self) -> None:
        """Write down a collective that takes long: where the job stands still, it is the one that does not end."""
        call = self.open
        if call is not None and time.monotonic() - call.began > _LONG:
            self.open = None
            call.event = call.event or self._event(call, {})  # its end has to be told as well
            self.session.event(call.event)

    def _is_told(self, at: Where | None, name: str) -> bool:
        """A line that comes often is written down in detailed steps only, after its first times."""
        line = self.lines.setdefault((at, name), [0, 0.0])
        now, last = time.monotonic(), line[1]
        line[0] += 1
        line[1] = now
        often = line[0] > _MOST_OF_LINE and now - last < _SELDOM
        return self.written < _MOST and (not often or (self.session.detailed and self.session.steps > 0))

    def _look(self, name: str, args: Any, kwargs: Any, differentiable: bool) -> dict[str, Any]:
        tensor = self._given(name, args, kwargs)
        fields: dict[str, Any] = {"differentiable": differentiable}
        peer = next((kwargs[key] for key in _PEERS if key in kwargs), None)
        if peer is None and BY_NAME[name].peer:
            peer = args[1] if len(args) > 1 else None
        if isinstance(peer, int):
            fields["peer"] = peer
        if BY_NAME[name].reduces:
            fields["reduce"] = self._operation(args, kwargs)
        if tensor is not None:
            fields |= {"shape": tuple(tensor.shape), "dtype": str(tensor.dtype).replace("torch.", "")}
            fields |= self._look_at(tensor)
            if "gather" in name and tensor.requires_grad and not self._is_in_function():
                fields["requires_grad"] = True  # under no_grad, too
            self._note_gathered(name, tensor, kwargs)
        return fields

    def _given(self, name: str, args: Any, kwargs: Any) -> Any:
        """The tensor that the rank gives."""
        listed = [*(args[1:2] if BY_NAME[name].output_first and len(args) > 1 else ()), *args]
        for value in (*listed, *(kwargs[key] for key in _TENSORS if key in kwargs)):
            first = value[0] if isinstance(value, list | tuple) and value else value
            first = first.tensor if type(first).__name__ == "P2POp" else first
            if isinstance(first, self.torch.Tensor):
                return first
        return None

    def _look_at(self, tensor: Any) -> dict[str, Any]:
        """Whether it carries a gradient, or is one, or is a parameter."""
        fields: dict[str, Any] = {}
        if tensor.requires_grad and self.torch.is_grad_enabled():
            fields["requires_grad"] = True
        parameter, what = self._parameter(tensor)
        if parameter is None:
            return fields
        fields[what] = self._key(parameter)
        if what == "gradient_of":
            self.training.exchanged[id(parameter)] = parameter
            with unseen(self.torch):
                fields["norm"] = float(parameter.grad.norm())
        return fields

    def _is_in_function(self) -> bool:
        """Whether an autograd.Function calls it, whose own backward may bring the gradient."""
        if self.torch.is_grad_enabled():
            return False
        apply = self.torch.autograd.Function.apply.__code__
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code is not apply:
            frame = frame.f_back
        return frame is not None

    def _parameter(self, tensor: Any) -> tuple[Any, str]:
        """The parameter whose memory, or whose gradient's, this is, or of which it begins with a copy."""
        if not is_plain(self.torch, tensor) or not tensor.numel():
            return None, ""
        address, size = tensor.data_ptr(), tensor.numel()
        plain = [known for known in self._parameters() if is_plain(self.torch, known)]
        for parameter in plain:
            if parameter.numel() != size:
                continue
            if parameter.data_ptr() == address:
                return parameter, "weight_of"
            if parameter.grad is not None and parameter.grad.data_ptr() == address:
                return parameter, "gradient_of"
        if tensor.dim() != 1:
            return None, ""
        flat = first_gradient_inside(self.torch, tensor, plain)
        if flat is not None:
            return flat, "gradient_of"
        return first_weight_inside(self.torch, tensor, plain), "weight_of"

    def _parameters(self) -> list[Any]:
        return [*self.training.held(), *self.training.wrapped()]

    def _key(self, parameter: Any) -> str | None:
        keys = self.training.keys
        if keys.get(parameter) is None:
            for optimizer in self.training.optimizers:
                groups = [group["params"] for group in optimizer.param_groups]
                if any(parameter is member for group in groups for member in group):
                    keys.of_groups(groups)
        return keys.get(parameter)

    def _note_gathered(self, name: str, tensor: Any, kwargs: Any) -> None:
        if "gather" not in name or not tensor.requires_grad or not tensor.dim():
            return
        size = self.torch.distributed.get_world_size(kwargs.get("group"))
        self.training.gathered.add(int(tensor.shape[0]) * size)

    def _operation(self, args: Any, kwargs: Any) -> str:
        given = [value for value in args if type(value).__name__ in ("ReduceOp", "RedOpType")]
        operation = kwargs.get("op", given[0] if given else None)
        return (
            "sum" if operation is None else str(operation).rpartition(".")[2].strip("<>:0123456789 ").lower()
        )

    def _group(self, args: Any, kwargs: Any) -> Any:
        """The process group that was given; None for the default group."""
        dist = self.torch.distributed
        given = [value for value in (*args, kwargs.get("group")) if isinstance(value, dist.ProcessGroup)]
        return given[0] if given and given[0] is not dist.group.WORLD else None

    def end(self, call: _OpenCollective) -> None:
        """The function returned, or raised."""
        self.depth -= 1
        self.open = None
        if call.waits:
            self.training.waits.end()
        seconds = time.monotonic() - call.began
        self.training.spend("collective", seconds, call.idle)
        event = call.event
        if event is not None:
            self.written += 1
            event.time, event.seconds, event.ended = call.began, round(seconds, 6), True
            self.session.event(event)

    def before_own(self, args: Any, kwargs: Any, caller: FrameType) -> Any:
        """A call inside a backward that is not the reducer's: what it adds to its group's number is taken off."""
        if self.counts_own or self.training.in_backward == 0 or not self.session.detailed:
            return None
        if self._is_reducers(caller):
            return None
        group = self._group(args, kwargs) or self.torch.distributed.group.WORLD
        begun = group, sequence_number(group)
        self.counts_own = True
        return begun

    def after_own(self, begun: Any) -> None:
        """It has returned."""
        self.counts_own = False
        group, number = begun
        now = sequence_number(group)
        if number is not None and now is not None:
            self.training.own_collectives[id(group)] += now - number

    def _is_reducers(self, caller: FrameType) -> bool:
        frame: FrameType | None = caller
        for _ in range(20):
            if frame is None:
                return False
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith(("torch.nn.parallel.", "torch.distributed.algorithms.ddp_comm_hooks")):
                return True
            if frame.f_code in self.training.hooks:
                return True
            frame = frame.f_back
        return False


def _is_scripts(caller: FrameType) -> bool:
    """Whether the caller is not torch itself, helpers that average parameters for the script apart.

    Nor is it a rehearsal, through which a call that torch issued comes here once more.
    """
    module = str(caller.f_globals.get("__name__", ""))
    return not module.startswith(("torch.", _RECORDER)) or "model_averaging" in module


def install(session: Session) -> None:
    """Watch torch.distributed's functions, and torch.distributed.nn's once the script imports them."""
    if not session.torch.distributed.is_available():
        return
    collectives = _Collectives(session)
    for name in names("core"):
        session.patch_function(_MODULES, name, functools.partial(_watch, collectives, name, False))
    later = functools.partial(_install_later, collectives)
    session.when_imported(_DIFFERENTIABLE, functools.partial(later, _DIFFERENTIABLE, names("nn"), True))
    session.when_imported(_FUNCTIONAL, functools.partial(later, _FUNCTIONAL, names("functional"), False))


def _install_later(
    collectives: _Collectives, module: str, names: tuple[str, ...], differentiable: bool
) -> None:
    for name in names:
        make = functools.partial(_watch, collectives, name, differentiable)
        collectives.session.patch_function((module, module.removesuffix(".functional")), name, make)


def _watch(
    collectives: _Collectives, name: str, differentiable: bool, original: Callable[..., Any]
) -> Callable[..., Any]:
    begin, end = guarded(collectives.begin), guarded(collectives.end)
    before_own, after_own = guarded(collectives.before_own), guarded(collectives.after_own)
    is_compiling, training = collectives.torch.compiler.is_compiling, collectives.training

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if is_compiling():
                return original(*args, **kwargs)
            caller = sys._getframe(1)
            if training.in_backward:
                issued = before_own(args, kwargs, caller)
                try:
                    return original(*args, **kwargs)
                finally:
                    if issued is not None:
                        after_own(issued)
            begun = begin(name, caller, args, kwargs, differentiable)
            if begun is None:
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                end(begun)
        except BaseException as passing:
            leave_out(passing)
            raise

    return call


def first_gradient_inside(torch: Any, tensor: Any, parameters: Sequence[Any]) -> Any:
    """The parameter whose gradient such a tensor begins with; None where it does not hold all of their gradients.

    Args:
        torch: the user's.
        tensor: one that is about to be reduced.
        parameters: those that are known, in the order of their optimizer or wrapper, some of them twice perhaps.
    """
    return _first_inside(torch, tensor, [(p, p.grad) for p in parameters if p.grad is not None])


def first_weight_inside(torch: Any, tensor: Any, parameters: Sequence[Any]) -> Any:
    """The parameter that such a tensor begins with; None where it does not hold all of them. See above."""
    return _first_inside(torch, tensor, [(parameter, parameter) for parameter in parameters])


def _first_inside(torch: Any, tensor: Any, held: Sequence[tuple[Any, Any]]) -> Any:
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
