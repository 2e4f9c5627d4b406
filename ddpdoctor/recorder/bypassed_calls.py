"""Calls of wrapped modules and their parts that go around the wrapper, and of copies of wrapped modules.

Hooks on the modules would travel with copies and checkpoints, so their classes are patched.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .digest import digests
from .digest import named as by_name
from .events.training import CopyForward
from .keys import names_inside
from .patch import guarded, has_compiled, leave_out
from .patches.forward import begin, caller_of, end
from .session import Session
from .training import Training, TrainingPart, Wrapper

_MOST_SHADOWS = 200
_CONTAINERS = ("ModuleList", "ModuleDict", "Sequential")


class Parts(TrainingPart):
    """Wrapped modules and their children by id."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.known: dict[int, tuple[weakref.ref[Any], Wrapper, bool]] = {}
        self.wholes: dict[type, list[Wrapper]] = {}
        self.shadows: dict[int, tuple[weakref.ref[Any], Wrapper, int] | None] = {}
        self.calls_of_copies: dict[tuple[int, bool], int] = {}
        """The training step of a copy's last call, with autograd or without it."""
        self._of_children: dict[type, tuple[Any, Any]] = {}
        """Classes of children alone: what they define as ``__call__``, and the patch."""
        self.training.when_looking.append(self._switch)

    def add(self, wrapper: Wrapper, module: Any) -> None:
        """Watch a wrapped module and its children."""
        self.known[id(module)] = weakref.ref(module), wrapper, True
        self.wholes.setdefault(type(module), []).append(wrapper)
        self._switch(looking=True)
        for kind in type(module).__mro__:  # what it inherits stays
            self._of_children.pop(kind, None)
        self._patch(type(module))
        for child in _children(module):
            self.known.setdefault(id(child), (weakref.ref(child), wrapper, False))
            self._patch_child(type(child))
        self._switch(looking=self.training.looking)

    def _patch(self, kind: type) -> None:
        if not issubclass(kind, self.torch.jit.ScriptModule):
            self.session.patch(kind, "__call__", functools.partial(_watch_call, self, kind))

    def _patch_child(self, kind: type) -> None:
        defined = vars(kind).get("__call__")
        self._patch(kind)
        patch = vars(kind).get("__call__")
        if patch is not defined:
            self._of_children[kind] = defined, patch
            self.session.on_undo(functools.partial(setattr, kind, "__call__", patch))

    def _switch(self, *, looking: bool) -> None:
        """Have the classes of children patched only while it is looked at: a model may have thousands of them.
        torch.compile would compile anew what it has compiled, if the classes in it changed."""
        if has_compiled():
            return
        for kind, (defined, patch) in self._of_children.items():
            before, after = (defined, patch) if looking else (patch, defined)
            if vars(kind).get("__call__") is not before:
                continue
            if after is None:
                del kind.__call__
            else:
                setattr(kind, "__call__", after)  # noqa: B010 - mypy takes it for a method

    @guarded
    def begin(self, module: Any, given: Any) -> Any:
        """A module of a watched class is called; None where that is nothing new."""
        if (known := self.known.get(id(module))) is None or known[0]() is not module:
            return self._look_at_copy(module)
        _, wrapper, whole = known
        ddp = wrapper.ref()
        if wrapper.depth or self.training.in_backward or ddp is None:
            return None
        if not whole and not self._is_news(wrapper, module):
            return None
        return begin(self.training, wrapper, ddp, given, around=True)

    def _is_news(self, wrapper: Wrapper, module: Any) -> bool:
        """A part that learns outside a forward of the whole counts once for each line and backward."""
        if not (module.training and self.torch.is_grad_enabled() and self.session.detailed):
            return False
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return False
        ddp = wrapper.ref()
        at = None if ddp is None else caller_of(self.session, ddp.module)
        if at in wrapper.around:
            return False
        wrapper.around.add(at)
        return True

    def _look_at_copy(self, module: Any) -> None:
        if not (candidates := self.wholes.get(type(module))) or self.training.in_backward:
            return
        shadow = self._shadow(module, candidates)
        grad = self.torch.is_grad_enabled()
        if shadow is None or not self._is_told(module, grad=grad):
            return
        if grad and any(parameter.requires_grad for parameter in module.parameters()):
            return  # it may be trained
        named = [*names_inside(module), *module.named_buffers()]
        values = digests(self.torch, [tensor for _, tensor in named])
        weights, at = by_name((name for name, _ in named), values), self.session.here()
        self.session.event(CopyForward(shadow[1].index, shadow[2], time.monotonic(), at, weights))

    def _is_told(self, copy: Any, *, grad: bool) -> bool:
        """Once in a step; of a copy that is called in every step, as a teacher is, in detailed ones."""
        steps, key = self.session.steps, (id(copy), grad)
        before = self.calls_of_copies.get(key)
        if before == steps or len(self.calls_of_copies) > _MOST_SHADOWS:
            return False
        self.calls_of_copies[key] = steps
        return self.session.detailed or before != steps - 1

    def _shadow(self, module: Any, candidates: list[Wrapper]) -> tuple[weakref.ref[Any], Wrapper, int] | None:
        known = self.shadows.get(id(module))
        if id(module) in self.shadows and (known is None or known[0]() is module):
            return known
        shapes = [(name, parameter.shape) for name, parameter in names_inside(module)]
        wrapper = next((candidate for candidate in candidates if _shapes(candidate) == shapes), None)
        number = sum(shadow is not None for shadow in self.shadows.values())
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
    parts = Parts.of(training.session)
    for module in modules:
        parts.add(wrapper, module)


def _watch_call(parts: Parts, kind: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling, training = parts.torch.compiler.is_compiling, parts.training
    finish = guarded(functools.partial(end, training))
    inherited = "__call__" not in vars(kind)

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        begun = None
        try:
            # What was inherited is looked up again: tracers replace it for a while.
            if inherited and (training.busy or is_compiling()):
                return super(kind, self).__call__(*args, **kwargs)
            forward = super(kind, self).__call__ if inherited else functools.partial(original, self)
            if training.busy or is_compiling():
                return forward(*args, **kwargs)
            if (begun := parts.begin(self, (args, kwargs))) is None:
                return forward(*args, **kwargs)
            result = forward(*args, **kwargs)
        except BaseException as error:
            leave_out(error)
            if begun is not None:
                finish(begun, None, error)
            raise
        finish(begun, result, None)
        return result

    return __call__
