"""Gradients that torch.autograd.grad or torch.func.grad takes of wrapped parameters: DDP's hooks do not run."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from ..events.training import GradientCall
from ..guard import guarded
from ..session import Session
from ..traceback_frames import leave_out
from ..training import TrainingPart, is_digested


def install(session: Session) -> None:
    """Watch torch.autograd.grad."""
    session.patch(session.torch.autograd, "grad", _GradientCalls(session).watch)


class _GradientCalls(TrainingPart):
    calls = 0

    def watch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        torch = self.torch

        @functools.wraps(original)
        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if torch.compiler.is_compiling():
                    return original(outputs, inputs, *args, **kwargs)
                if not isinstance(inputs, torch.Tensor | list | tuple):
                    inputs = tuple(inputs)  # as torch does; an iterator can be read once
                self.tell(inputs)
                return original(outputs, inputs, *args, **kwargs)
            except BaseException as passing:
                leave_out(passing)
                raise

        return grad

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
            if self.session.steps or is_digested(self.calls):
                self.session.event(GradientCall(time.monotonic(), self.session.here(), len(given)))
