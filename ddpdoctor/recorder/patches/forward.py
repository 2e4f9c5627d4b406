"""Forwards: of the wrapper, around it, and of copies of the wrapped module."""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from ..buffers import tell_buffers
from ..digest import digests, sample, unseen
from ..guard import guarded
from ..keys import names_inside
from ..patch import watch
from ..session import Session
from ..training import Training, Wrapper, is_digested

_OFTEN = 0.25
"""Seconds between two forwards without autograd that are written down beside detailed steps."""
_MOST_SHADOWS = 200
_CONTAINERS = ("ModuleList", "ModuleDict", "Sequential")


def install(session: Session) -> None:
    """Watch DistributedDataParallel.forward."""
    if not session.torch.distributed.is_available():
        return
    training = Training.of(session)
    begin = functools.partial(_begin_wrapped, training)
    end = functools.partial(_end, training)
    wrapper = session.torch.nn.parallel.DistributedDataParallel
    session.patch(wrapper, "forward", watch(session.torch, begin, end))


def _begin_wrapped(training: Training, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    ddp = args[0]
    wrapper = training.wrapper(ddp)
    return None if wrapper is None else _begin(training, wrapper, ddp, (args[1:], kwargs), around=False)


def _begin(training: Training, wrapper: Wrapper, ddp: Any, given: Any, *, around: bool) -> Any:
    """Look at what is there before a forward; what was seen is written down after it."""
    grad = training.torch.is_grad_enabled()
    synced = bool(ddp.require_backward_grad_sync)
    if grad:
        training.open_step()
    seen = None
    if training.session.detailed if grad else _is_told(training, wrapper):
        at = _caller_of(training.session, ddp.module) if around else training.session.here()
        seen = {"w": wrapper.index, "grad": grad, "at": at}
        seen |= {"around": True} if around else {}
        seen |= {} if synced else {"synced": False}
        seen |= _look(training, wrapper, ddp, given, grad) or {}
    if not grad and wrapper.evaluated != training.session.steps:
        wrapper.evaluated = training.session.steps
        guarded(tell_buffers)(training.session, "evaluation", at=training.session.here(), only=wrapper)
    wrapper.depth += 1
    training.busy += 1
    return wrapper, seen, time.monotonic(), grad and synced and not around


def _caller_of(session: Session, module: Any) -> int | None:
    """The user's line that called the wrapped module, whichever of its methods that came in by."""
    inside = getattr(module, "_orig_mod", module)
    frame: FrameType | None = sys._getframe(1)
    outermost = None
    while frame is not None:
        code = frame.f_code
        # By identity: what stands there may compare in its own way.
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if first is not None and (first is module or first is inside):
            outermost = frame
        frame = frame.f_back
    frame = outermost and outermost.f_back
    while frame is not None and session.sites.is_foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return session.here() if frame is None else session.sites.number(frame.f_code, frame.f_lineno)


def _is_told(training: Training, wrapper: Wrapper) -> bool:
    now = time.monotonic()
    if (
        training.session.steps == wrapper.evaluated
        and now - wrapper.told < _OFTEN
        and not training.session.detailed
    ):
        return False
    wrapper.told = now
    return True


@guarded
def _look(training: Training, wrapper: Wrapper, ddp: Any, given: Any, grad: bool) -> dict[str, Any]:
    torch = training.torch
    seen: dict[str, Any] = {"training": bool(ddp.module.training)}
    first = next(_tensors(torch, given), None)
    digested = is_digested(training.session.steps)
    if first is not None:
        seen["batch"] = int(first.shape[0]) if first.dim() else 1
        if digested:
            with unseen(torch):
                seen["input"] = sample(torch, first)
    if grad:
        seen["unknown"] = _unknown(wrapper, ddp)
        if digested:
            seen |= _look_at_layers(torch, ddp, first)
    return seen


def _tensors(torch: Any, given: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(given, torch.Tensor):
        yield given
    elif depth < 4 and isinstance(given, list | tuple | dict):
        for one in given.values() if isinstance(given, dict) else given:
            yield from _tensors(torch, one, depth + 1)


def _unknown(wrapper: Wrapper, ddp: Any) -> list[str]:
    """Trainable parameters that were not there, or were frozen, when the module was wrapped."""
    known = wrapper.trainable
    ignored = getattr(ddp, "parameters_to_ignore", ())
    return [
        name
        for name, parameter in names_inside(ddp.module)
        if parameter.requires_grad
        and (id(parameter) not in known or known[id(parameter)]() is not parameter)
        and name not in ignored
    ]


def _look_at_layers(torch: Any, ddp: Any, first: Any) -> dict[str, Any]:
    norms = drops = 0
    plain, synced = torch.nn.modules.batchnorm._BatchNorm, torch.nn.SyncBatchNorm
    for module in ddp.module.modules():
        if not module.training:
            continue
        norms += isinstance(module, plain) and not isinstance(module, synced)
        drops += _draws(torch, module)
    return {"batch_norms": norms, "random": _random(torch, first) if drops else None}


def _draws(torch: Any, module: Any) -> bool:
    """Whether a module in train mode drops values at random."""
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, torch.nn.MultiheadAttention | torch.nn.RNNBase):
        return bool(module.dropout > 0)
    return False


def _random(torch: Any, first: Any) -> Any:
    """The state that the first tensor's device draws from, read and left as it is."""
    if first is not None and first.device.type == "cuda":
        state = torch.cuda.default_generators[first.device.index or 0].get_state()
    else:
        state = torch.default_generator.get_state()
    return digests(torch, [state])[0]


def _end(training: Training, begun: Any, _: Any, error: BaseException | None) -> None:
    wrapper, seen, since, arms = begun
    wrapper.depth -= 1
    training.busy -= 1
    seconds = time.monotonic() - since
    if wrapper.depth == 0:
        training.spend("forward", seconds)
    if arms and error is None:
        wrapper.armed = True
    if seen:
        training.session.event("ddp.forward", s=round(seconds, 6), **seen)


class _Parts:
    """Wrapped modules and their children by id, so that calls around the wrapper are seen.

    Hooks on the modules would travel with copies and checkpoints, so their classes are patched.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.known: dict[int, tuple[weakref.ref[Any], Wrapper, bool]] = {}
        self.wholes: dict[type, list[Wrapper]] = {}
        self.shadows: dict[int, tuple[weakref.ref[Any], Wrapper, int] | None] = {}
        self.told_shadows: dict[int, int] = {}
        self.inside = 0

    def add(self, wrapper: Wrapper, module: Any) -> None:
        """Watch a wrapped module and its children."""
        self.known[id(module)] = weakref.ref(module), wrapper, True
        self.wholes.setdefault(type(module), []).append(wrapper)
        self._patch(type(module))
        for child in _children(module):
            self.known.setdefault(id(child), (weakref.ref(child), wrapper, False))
            self._patch(type(child))

    def _patch(self, kind: type) -> None:
        torch = self.training.torch
        if not issubclass(kind, torch.jit.ScriptModule):
            self.training.session.patch(kind, "__call__", functools.partial(_watch_call, self, kind))

    @guarded
    def begin(self, module: Any, given: Any) -> Any:
        """A module of a watched class is called; None where that is nothing new."""
        found = self.known.get(id(module))
        if found is None or found[0]() is not module:
            return self._look_at_copy(module)
        _, wrapper, whole = found
        ddp = wrapper.ref()
        if wrapper.depth or self.training.in_backward or ddp is None:
            return None
        if not whole and not self._is_news(wrapper, module):
            return None
        return _begin(self.training, wrapper, ddp, given, around=True)

    def _is_news(self, wrapper: Wrapper, module: Any) -> bool:
        """A part that learns outside a forward of the whole counts once for each line and backward."""
        if (
            not module.training
            or not self.training.torch.is_grad_enabled()
            or not self.training.session.detailed
        ):
            return False
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return False
        ddp = wrapper.ref()
        at = None if ddp is None else _caller_of(self.training.session, ddp.module)
        if at in wrapper.around:
            return False
        wrapper.around.add(at)
        return True

    def _look_at_copy(self, module: Any) -> None:
        candidates = self.wholes.get(type(module))
        if not candidates or self.training.torch.is_grad_enabled() or self.training.in_backward:
            return
        shadow = self._shadow(module, candidates)
        steps = self.training.session.steps
        if (
            shadow is None
            or self.told_shadows.get(id(module)) == steps
            or len(self.told_shadows) > _MOST_SHADOWS
        ):
            return
        self.told_shadows[id(module)] = steps
        named = [*names_inside(module), *module.named_buffers()]
        values = digests(self.training.torch, [tensor for _, tensor in named])
        own = {name: value for (name, _), value in zip(named, values, strict=True)}
        at = self.training.session.here()
        self.training.session.event("ddp.shadow", at=at, w=shadow[1].index, number=shadow[2], digests=own)

    def _shadow(self, module: Any, candidates: list[Wrapper]) -> tuple[weakref.ref[Any], Wrapper, int] | None:
        known = self.shadows.get(id(module))
        if id(module) in self.shadows and (known is None or known[0]() is module):
            return known
        shapes = [(name, parameter.shape) for name, parameter in names_inside(module)]
        wrapper = next((one for one in candidates if _shapes(one) == shapes), None)
        number = sum(one is not None for one in self.shadows.values())
        self.shadows[id(module)] = (weakref.ref(module), wrapper, number) if wrapper else None
        return self.shadows[id(module)]


def _shapes(wrapper: Wrapper) -> list[Any]:
    ddp = wrapper.ref()
    return [] if ddp is None else [(name, parameter.shape) for name, parameter in names_inside(ddp.module)]


def _children(module: Any) -> Iterator[Any]:
    for child in module.children():
        yield child
        if type(child).__name__ in _CONTAINERS:
            yield from child.children()


def watch_parts(training: Training, wrapper: Wrapper, modules: Iterable[Any]) -> None:
    """Watch calls of wrapped modules, and of their children, that go around the wrapper."""
    parts: _Parts = training.session.shared.setdefault("parts", None) or _Parts(training)
    training.session.shared["parts"] = parts
    for module in modules:
        parts.add(wrapper, module)


def _watch_call(parts: _Parts, kind: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling, training = parts.training.torch.compiler.is_compiling, parts.training
    end = guarded(functools.partial(_end, training))
    inherited = "__call__" not in vars(kind)

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        # What was inherited is looked up again: tracers replace it for a while.
        if inherited and (training.busy or is_compiling()):
            return super(kind, self).__call__(*args, **kwargs)
        forward = super(kind, self).__call__ if inherited else functools.partial(original, self)
        if training.busy or is_compiling():
            return forward(*args, **kwargs)
        begun = parts.begin(self, (args, kwargs))
        if begun is None:
            return forward(*args, **kwargs)
        try:
            result = forward(*args, **kwargs)
        except BaseException as error:
            end(begun, None, error)
            raise
        end(begun, result, None)
        return result

    return __call__
