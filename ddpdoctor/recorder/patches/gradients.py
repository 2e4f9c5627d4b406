"""Gradients that torch.autograd.grad takes with respect to wrapped parameters: DDP's hooks do not run for them."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from ..events.training import GradientCall
from ..guard import guarded
from ..session import Session
from ..training import Training, is_digested


def install(session: Session) -> None:
    """Watch torch.autograd.grad."""
    session.patch(session.torch.autograd, "grad", _GradientCalls(session).watch)


class _GradientCalls:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.training = Training.of(session)
        self.calls = 0

    def watch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        torch = self.session.torch

        @functools.wraps(original)
        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(outputs, inputs, *args, **kwargs)
            if not isinstance(inputs, torch.Tensor | list | tuple):
                inputs = tuple(inputs)  # as torch does; an iterator can be read once
            self.tell(inputs)
            return original(outputs, inputs, *args, **kwargs)

        return grad

    @guarded
    def tell(self, inputs: Any) -> None:
        """Write down that gradients of wrapped parameters are asked for."""
        if not self.training.wrappers or not self.session.detailed:
            return
        given = (inputs,) if isinstance(inputs, self.session.torch.Tensor) else inputs
        if any(self.training.keys.is_wrapped(tensor) for tensor in given):
            self.calls += 1
            if self.session.steps or is_digested(self.calls):
                self.session.event(GradientCall(time.monotonic(), self.session.here(), len(given)))
