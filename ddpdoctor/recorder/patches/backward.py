"""Backwards, and whether each wrapper's reducer all-reduced gradients in them.

The sequence number of a process group also counts what the C++ reducer issues, which no function of
torch.distributed sees. What the script's own calls add to it meanwhile is taken off.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..digest import is_plain, sample, text, unseen
from ..events.schema import Event
from ..events.training import Backward, GradientCall, MeanLoss
from ..patch import IN_FULL, Args, Kwargs, around, guarded, watch
from ..session import Session
from ..sites import variables_of
from ..training import Training, TrainingPart, Wrapper, sequence_number
from ..where import Where
from .ddp import Hooked
from .losses import divisors, factors_of_means, scale_means
from .scaler import Scalers

_LOOKED_AT = 16
"""Parameters of each wrapper whose gradients tell whether a backward came to it."""
_MOST_NODES = 3000


def install(session: Session) -> None:
    """Watch torch.autograd.backward, which Tensor.backward calls, and torch.autograd.grad."""
    training = Training.of(session)
    parts = (functools.partial(part, training) for part in (_begin, _end, _briefly))
    session.patch(session.torch.autograd, "backward", watch(session.torch, *parts))
    session.patch(session.torch.autograd, "grad", around(_GradientCalls(session).grad))


def _briefly(training: Training, original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    if not training.quiet or training.in_backward or training.scales:
        return IN_FULL
    training.updated = False
    if training.wants_loss:
        _note_loss(training, args, kwargs)
    training.in_backward += 1
    training.busy += 1
    try:
        return original(*args, **kwargs)
    finally:
        training.in_backward -= 1
        training.busy -= 1
        training.session.backwards += 1


def _begin(training: Training, args: Args, kwargs: Kwargs) -> Any:
    training.in_backward += 1
    if training.updated and training.in_backward == 1:
        training.open_step()
    training.enter()
    if training.in_backward > 1:
        return {"nested": True}
    if training.wants_loss:
        _note_loss(training, args, kwargs)
    training.own_collectives.clear()
    begun: dict[str, Any] = {"began": time.monotonic(), "nested": False}
    if training.session.detailed:
        wrappers = training.living()
        begun |= {"at": training.session.here(), "numbers": _numbers(training, wrappers)}
        begun["grads"] = _gradients(wrappers)
        loss = args[0] if args else kwargs.get("tensors")
        begun["loss"] = _look_at_loss(training, loss)
        weights = args[1] if len(args) > 1 else kwargs.get("grad_tensors")
        _tell_means(training, begun["at"], loss if weights is None else None)
        if not training.backwards:
            Leaves.of(training.session).look(loss, begun["at"])
        if training.hooks or not training.wrappers:
            Hooked.of(training.session).begin(loss)
        begun["began"] = time.monotonic()
    begun["idle"] = training.waits.idle()
    begun["waits"] = training.waits.begin()
    return begun


def _end(training: Training, begun: Any, _: Any, error: BaseException | None) -> None:
    training.in_backward -= 1
    training.leave()
    if begun["nested"]:
        return
    if begun["waits"]:
        training.waits.end()
    seconds = time.monotonic() - begun["began"]
    training.spend("backward", seconds, begun["idle"])
    training.backwards += 1
    training.session.backwards += 1
    if training.scales:
        Scalers.of(training.session).by_hand.after_backward()
        training.scales.clear()
    if training.hooks or not training.wrappers:
        Hooked.of(training.session).end()
    if "at" in begun:
        _tell(training, begun, seconds, error)


@guarded
def _note_loss(training: Training, args: Args, kwargs: Kwargs) -> None:
    """Keep the loss for when it is next told of the progress."""
    training.wants_loss = False
    torch, loss = training.torch, args[0] if args else kwargs.get("tensors")
    if not (isinstance(loss, torch.Tensor) and is_plain(torch, loss)):
        return
    with unseen(torch):
        if loss.device.type == "cuda" and not training.session.options.rehearse:
            if loss.numel() == 1 and not loss.is_complex():
                training.loss.copy(loss.detach(), _scale(training.scales))
        else:
            training.loss.value = _value(torch, loss.detach(), training.scales).get("value")


def _tell(training: Training, begun: dict[str, Any], seconds: float, error: BaseException | None) -> None:
    wrappers = training.living()
    issued = _issued(training, begun["numbers"], wrappers)
    before = begun["grads"]
    touched = {index for index, now in _gradients(wrappers).items() if now != before.get(index)}
    reduced = [
        wrapper.index
        for wrapper, _ in wrappers
        if wrapper.armed
        and issued.get(id(wrapper.group), 1) > 0
        and (len(wrappers) == 1 or wrapper.index in touched)
        and error is None
    ]
    waiting = {wrapper.index for wrapper, _ in wrappers if wrapper.armed and error is None}
    missed = tuple(sorted(waiting - touched - set(reduced)))
    for wrapper, _ in wrappers:
        wrapper.armed &= wrapper.index not in reduced
        wrapper.around.clear()
    count, seconds = issued.get(-1, 0), round(seconds, 6)
    began, at, loss = begun["began"], begun["at"], begun["loss"] or {}
    if training.counted and training.is_digested and reduced:
        loss["norms"] = _norm(training, wrappers, reduced[0])
    loss["anew"] = bool(before) and not any(number for of_one in before.values() for number, _ in of_one)
    training.session.event(Backward(began, at, tuple(reduced), count, seconds, missed=missed, **loss))


def _norm(training: Training, wrappers: list[tuple[Wrapper, Any]], index: int) -> dict[str, float]:
    """That of one gradient of a wrapper, which is told at the update, too."""
    refs = (ref for wrapper, _ in wrappers if wrapper.index == index for ref in wrapper.trainable.values())
    parameter = next((it for ref in refs if (it := ref()) is not None and it.grad is not None), None)
    key = None if parameter is None else training.keys.get(parameter)
    if parameter is None or key is None:
        return {}
    training.exchanged[id(parameter)] = parameter
    with unseen(training.torch):
        return {key: float(parameter.grad.norm())}


def _numbers(training: Training, wrappers: list[tuple[Wrapper, Any]]) -> dict[int, tuple[Any, int]]:
    """The sequence numbers of the wrappers' groups, by the group's id; -1 is the default group."""
    dist = training.torch.distributed
    groups = {id(wrapper.group): wrapper.group for wrapper, _ in wrappers}
    if dist.is_available() and dist.is_initialized():
        groups[-1] = dist.group.WORLD
    read = {key: (group, sequence_number(group)) for key, group in groups.items()}
    return {key: (group, number) for key, (group, number) in read.items() if number is not None}


def _issued(
    training: Training, before: dict[int, tuple[Any, int]], wrappers: list[tuple[Wrapper, Any]]
) -> dict[int, int]:
    """What each group counted since then beside the script's own collectives; without a group whose number never moves,
    though wrappers broadcast and reduced: there, what the reducer should have done is taken for done."""
    issued = {}
    for key, (group, number) in before.items():
        if now := sequence_number(group):
            of_script = 0 if key == -1 else training.own_collectives[id(group)]
            issued[key] = now - number - of_script
    return issued


def _gradients(wrappers: list[tuple[Wrapper, Any]]) -> dict[int, list[tuple[int, int]]]:
    """Identity and version of some gradients of each wrapper: what a backward comes to changes."""
    versions = {}
    for wrapper, _ in wrappers:
        refs = list(wrapper.trainable.values())
        some = [p for ref in refs[:: max(1, len(refs) // _LOOKED_AT)] if (p := ref()) is not None]
        versions[wrapper.index] = [(0, 0) if p.grad is None else (id(p.grad), p.grad._version) for p in some]
    return versions


def _look_at_loss(training: Training, loss: Any) -> dict[str, Any] | None:
    torch = training.torch
    if not isinstance(loss, torch.Tensor) or loss.grad_fn is None:
        return None
    facts: dict[str, Any] = {}
    with unseen(torch):
        if (factor := _factor(loss.grad_fn, training.scales)) is not None:
            facts["factor"] = factor
        if training.is_digested:
            facts["loss"] = text(sample(torch, loss.detach()))
            if is_plain(torch, loss):
                facts |= _value(torch, loss.detach(), training.scales)
    if training.gathered:
        facts["gathered"] = _holds(loss.grad_fn, training.gathered)
    return facts


def _value(torch: Any, loss: Any, scales: list[float]) -> dict[str, Any]:
    """Whether the loss is finite, and what it is where that is one number."""
    if loss.numel() > 1 or loss.is_complex():
        return {"finite": bool(torch.isfinite(loss).all())}
    value = float(loss) if loss.numel() else 0.0
    if not math.isfinite(value):
        return {"finite": False}
    return {"finite": True, "value": value / _scale(scales)}


def _scale(scales: list[float]) -> float:
    return (scales[-1] if scales else 0.0) or 1.0


@guarded
def _tell_means(training: Training, at: Where | None, loss: Any) -> None:
    """Write down the means that functions of torch took, with what the script scales them by, and those by hand."""
    torch = training.torch
    taken, sums = ([mean for mean in training.means if mean.is_sum is kind] for kind in (False, True))
    training.means = []
    if not isinstance(loss, torch.Tensor) or loss.grad_fn is None:
        return
    wait = training.is_digested
    with unseen(torch):
        by_hand = list(divisors(torch, loss.grad_fn, wait=wait))
        factors_of = functools.partial(factors_of_means, torch, loss.grad_fn, training.scales, wait=wait)
        factors, of_sums = list(factors_of()) if taken else [], list(factors_of(sums=True)) if sums else []
    for mean in (*scale_means(taken, factors), *scale_means(sums, of_sums)):
        training.session.event(mean)
    for one in by_hand:
        training.session.event(MeanLoss(at, None, one.count, factor=one.factor))


def _factor(node: Any, scales: list[float]) -> float | None:
    """What the loss was multiplied by last, a scaler's own scale apart; None where that cannot be told."""
    name = type(node).__name__
    if name in ("MulBackward0", "DivBackward0"):
        other = _number(getattr(node, "_saved_other", None))
        if name == "MulBackward0" and other is not None and other in scales:
            above = node.next_functions[0][0]
            return None if above is None else _factor(above, [])
        return other if other is None or name == "MulBackward0" else (1 / other if other else None)
    made = name.removesuffix("0").removesuffix("Backward")
    return 1.0 if made.endswith(("Loss", "Mean", "Sum", "LossWithLogits")) or "CrossEntropy" in made else None


def _number(value: Any) -> float | None:
    """A number that lies in the memory of this process."""
    if isinstance(value, int | float):
        return float(value)
    if value is None or value.dim() or value.device.type != "cpu" or value.requires_grad:
        return None
    return float(value)


def _holds(node: Any, lengths: set[int]) -> bool | None:
    """Whether a graph has an operation whose result is as long as one of these in some dimension. None where this
    torch's nodes do not tell, as 2.4's."""
    visited, waiting = set[Any](), [node]
    has_metadata = False
    while waiting and len(visited) < _MOST_NODES:
        if (current := waiting.pop()) is None or current in visited:
            continue
        visited.add(current)
        results = getattr(current, "_input_metadata", None)
        has_metadata |= results is not None
        if any(length in lengths for result in results or () for length in result.shape):
            return True
        waiting.extend(above for above, _ in current.next_functions)
    return False if has_metadata else None


class _GradientCalls(TrainingPart):
    """Gradients that torch.autograd.grad or torch.func.grad takes of wrapped parameters: DDP's hooks do not run."""

    calls = 0

    def grad(self, original: Callable[..., Any], outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.torch.compiler.is_compiling():
            if not isinstance(inputs, self.torch.Tensor | list | tuple):
                inputs = tuple(inputs)  # as torch does; an iterator can be read once
            self.tell(inputs)
        return original(outputs, inputs, *args, **kwargs)

    def _are_of_func(self, given: Any) -> bool:
        """Whether torch.func.grad asks, with tensors of its own that stand for wrapped parameters."""
        func = getattr(self.torch._C, "_functorch", None)
        if func is None or not all(map(func.is_gradtrackingtensor, given)):
            return False
        held = {parameter.data_ptr() for parameter in self.training.wrapped()}
        inner = map(func.get_unwrapped, given)
        return any(not func.is_functorch_wrapped_tensor(it) and it.data_ptr() in held for it in inner)

    @guarded
    def tell(self, inputs: Any) -> None:
        """Write down that gradients of wrapped parameters are asked for."""
        if not self.training.wrappers or not self.session.detailed:
            return
        given = (inputs,) if isinstance(inputs, self.torch.Tensor) else inputs
        if any(map(self.training.keys.is_wrapped, given)) or self._are_of_func(given):
            self.calls += 1
            if self.session.steps or self.training.sampling.is_digested(self.calls):
                self.session.event(GradientCall(time.monotonic(), self.session.here(), len(given)))


_STEPS = 8
"""Training steps in which they are looked for."""
_MOST_FRAMES = 64
_MOST = 8


@dataclass(slots=True)
class Leaf(Event):
    """One of such tensors, in the first backward of a training step."""

    step: int
    """The training step, since an optimizer or a wrapper was new."""
    at: Where | None
    """The backward."""
    name: str
    """Its variable, ``self.centers`` for an attribute."""
    shape: tuple[int, ...] = ()
    digest: str | None = None


class Leaves(TrainingPart):
    """Tensors that a loss depends on, that take a gradient, and that neither a wrapper nor an optimizer holds. The
    script may train them itself. They are known by the variable that holds them."""

    @guarded
    def look(self, loss: Any, at: Where | None) -> None:
        """The first backward of a training step begins."""
        training, torch = self.training, self.torch
        if training.number >= _STEPS or not training.wrappers or not isinstance(loss, torch.Tensor):
            return
        held = {id(parameter) for parameter in [*training.wrapped(), *training.held()]}
        leaves = [leaf for leaf in _leaves(loss.grad_fn) if id(leaf) not in held and is_plain(torch, leaf)]
        names = self._names({id(leaf) for leaf in leaves}) if leaves else {}
        for leaf in [leaf for leaf in leaves if id(leaf) in names][:_MOST]:
            with unseen(torch):
                digest = text(sample(torch, leaf.detach()))
            told = Leaf(training.number, at, names[id(leaf)], tuple(leaf.shape), digest)
            self.session.event(told)

    def _names(self, wanted: set[int]) -> dict[int, str]:
        """The variables that hold these objects, by the objects' ids; the innermost function's first."""
        names: dict[int, str] = {}
        for frame in self.session.sites.own_frames(sys._getframe(1), _MOST_FRAMES):
            for name, value in variables_of(frame).items():
                attributes = getattr(value, "__dict__", None) if type(value) is not type(sys) else None
                if id(value) in wanted:
                    names.setdefault(id(value), name)
                elif type(attributes) is dict:
                    parts = {**attributes, **(attributes.get("_parameters") or {})}
                    for part in [part for part in parts if id(parts[part]) in wanted]:
                        names.setdefault(id(parts[part]), f"{name}.{part}")
        return names


def _leaves(node: Any) -> Iterator[Any]:
    """The tensors at the ends of a graph, from its nearest ones on."""
    known, waiting = {node}, deque([node])
    while waiting and len(known) < _MOST_NODES:
        current = waiting.popleft()
        if hasattr(current, "variable"):
            yield current.variable
        for above, _ in getattr(current, "next_functions", ()):
            if above is not None and above not in known:
                known.add(above)
                waiting.append(above)
