"""Losses that take a mean: over how many targets."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..digest import unseen
from ..events.training import MeanLoss
from ..guard import guarded
from ..patch import IN_FULL, watch
from ..session import Session
from ..training import TrainingPart

_CLASSIFYING = ("cross_entropy", "nll_loss")
_ELEMENTWISE = (
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"),
    *("binary_cross_entropy_with_logits", "soft_margin_loss"),
)

_MOST_MEANS = 64
"""Of a backward."""


def install(session: Session) -> None:
    """Watch the functions of torch.nn.functional; the modules of torch.nn go through them."""
    losses = _Losses(session)
    for name in (*_CLASSIFYING, *_ELEMENTWISE):
        session.patch_function(("torch.nn.functional",), name, functools.partial(losses.watch, name))


class _Losses(TrainingPart):
    depth = 0
    """Calls under way: some call others."""

    def watch(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Watch one function."""
        # Not by signature.bind, which takes as long as all the rest.
        defaults = {name: value.default for name, value in inspect.signature(original).parameters.items()}

        def end(begun: Any, result: Any, error: BaseException | None) -> None:
            self.depth -= 1
            if error is None and self.depth == 0:
                args, kwargs = begun
                self._tell(name, {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}, result)

        call = watch(self.torch, self._begin, end, self._briefly)(original)
        # torch.jit.script compiles what stands here.
        call.__prepare_scriptable__ = lambda: original  # type: ignore[attr-defined]
        return call

    def _briefly(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return original(*args, **kwargs) if self.training.quiet else IN_FULL

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.training.updated and self.torch.is_grad_enabled():
            self.training.open_step()
        if not self.session.detailed:
            return None
        self.depth += 1
        return args, kwargs

    @guarded
    def _tell(self, name: str, given: dict[str, Any], result: Any) -> None:
        if not isinstance(result, self.torch.Tensor) or not result.requires_grad or self.training.in_backward:
            return
        if (
            given.get("reduction") != "mean"
            or given.get("reduce") is False
            or given.get("size_average") is False
        ):
            return
        counted = self._count(name, given)
        if counted is None:
            return
        count, elements = counted
        ignored = given["ignore_index"] if count < elements else None
        if len(self.training.means) < _MOST_MEANS:
            self.training.means.append(MeanLoss(self.session.here(), name, count, ignored))

    def _count(self, name: str, given: dict[str, Any]) -> tuple[int, int] | None:
        values, target = given["input"], given["target"]
        if type(target) is not self.torch.Tensor:
            return None
        if name in _ELEMENTWISE:
            return values.numel(), values.numel()
        if target.is_floating_point():
            # Probabilities of classes: one row is one target.
            count = values.numel() // max(1, values.shape[1] if values.dim() > 1 else values.shape[0])
            return count, count
        with unseen(self.torch):
            return int((target != given["ignore_index"]).sum()), target.numel()
