"""What a script's communication hook makes of gradients: a few of their values before it, after it and at the update.

The same of gradients that no wrapper averages: then it is the script that does, between the backward and the update.

A mean over ranks is known only where the ranks' values lie side by side, so each writes down its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

from .digest import few, unseen
from .events.updates import HookedGradient
from .patch import Args, Kwargs, guarded, hide_from_compiler
from .patches.losses import factors_of_means
from .session import Session
from .training import TrainingPart, Wrapper

_UPDATES = 4
"""From the start; a hook does the same in every step."""
_MOST = 8
"""Gradients in each."""


class Hooked(TrainingPart):
    """The gradients that hooks were given in this training step."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.records: dict[int, tuple[Any, HookedGradient]] = {}
        """The parameters, and what is told of them once all of it is known."""
        self.factor: float | None = None
        """Of the last loss, as far as it is a mean."""

    def around(self, wrapper: Wrapper, hook: Any) -> Any:
        """A hook that does the same, and looks at what it is given."""
        if not isinstance(hook, FunctionType | MethodType) or str(hook.__module__).startswith("torch."):
            return hook
        is_compiling, look = self.torch.compiler.is_compiling, self._look

        @functools.wraps(hook)
        def call(state: Any, bucket: Any) -> Any:
            if not is_compiling():
                look(wrapper, bucket)
            return hook(state, bucket)

        hide_from_compiler(self.torch, call)
        return call

    @guarded
    def _look(self, wrapper: Wrapper, bucket: Any) -> None:
        if self.session.steps >= _UPDATES or self.training.joined or not self.training.in_backward:
            return
        with unseen(self.torch):
            pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
            parameter, gradient = max(pairs, key=lambda pair: pair[0].numel())
            if id(parameter) in self.records or len(self.records) < _MOST:
                self._note(parameter, wrapper.index, gradient)

    def _note(self, parameter: Any, wrapper: int | None, gradient: Any) -> None:
        self.records[id(parameter)] = (
            parameter,
            HookedGradient(self.session.steps, wrapper, "", few(gradient)),
        )

    @guarded
    def begin(self, loss: Any) -> None:
        """A backward begins."""
        if self.session.steps >= _UPDATES or not isinstance(loss, self.torch.Tensor):
            return
        with unseen(self.torch):
            means = factors_of_means(self.torch, loss.grad_fn, self.training.scales, wait=False)
            self.factor = next((factor for _, factor in means), None)

    @guarded
    def end(self) -> None:
        """A backward has ended."""
        if not self.records and self.session.steps >= _UPDATES:
            return
        with unseen(self.torch):
            if not self.training.wrappers:
                self._look_at_own()
            for parameter, record in self.records.values():
                if not record.got and parameter.grad is not None:
                    record.got = few(parameter.grad)

    def _look_at_own(self) -> None:
        torch, dist = self.torch, self.torch.distributed
        if self.session.steps >= _UPDATES or not dist.is_available() or not dist.is_initialized():
            return
        # What a hook has made of a gradient by now is not what the rank's own batch gave.
        plain = [
            p
            for p in self.training.held()
            if type(p.grad) is torch.Tensor and p.grad.layout is torch.strided
            if not (p._backward_hooks or p._post_accumulate_grad_hooks)
        ]
        for parameter in sorted(plain, key=lambda p: -p.numel())[:_MOST]:
            self._note(parameter, None, parameter.grad)

    @guarded
    def updating(self) -> None:
        """An optimizer is about to step."""
        records, self.records = self.records, {}
        for parameter, record in records.values():
            if not record.got or parameter.grad is None:
                continue
            with unseen(self.torch):
                record.used = few(parameter.grad)
            record.got = record.used if record.wrapper is None else record.got
            record.step, record.key = self.session.steps, str(self.training.keys.get(parameter))
            record.factor, record.backwards = self.factor, self.training.backwards
            self.session.event(record)

    def register(
        self, tell: Callable[[Args, Kwargs], None], original: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """The script registers a hook; what stands for it is not copied and saved with the wrapper."""
        given = self._given(tell, args, kwargs)
        if not given:
            return original(*args, **kwargs)
        result = original(**given)
        self._restore(given["self"], given["hook"])
        return result

    @guarded
    def _given(self, tell: Callable[[Args, Kwargs], None], args: Args, kwargs: Kwargs) -> Kwargs:
        tell(args, kwargs)
        given = dict(zip(("self", "state", "hook"), args, strict=False)) | kwargs
        wrapper = self.training.wrapper(given["self"])
        return {} if wrapper is None else given | {"hook": self.around(wrapper, given["hook"])}

    @guarded
    def _restore(self, ddp: Any, hook: Any) -> None:
        kept = getattr(ddp, "_comm_hooks", None)
        if kept and kept[-1][0] is hook and hasattr(hook, "__wrapped__"):
            kept[-1] = (hook.__wrapped__, *kept[-1][1:])
