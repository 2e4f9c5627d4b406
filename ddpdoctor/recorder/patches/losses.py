"""Losses that take a mean: over how many targets, and what the graph of a loss tells of it at its backward.

Means that a script takes by hand, and what a mean is scaled by.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..digest import unseen
from ..events.training import MeanLoss
from ..patch import IN_FULL, Args, Kwargs, guarded, watch
from ..session import Session
from ..training import TrainingPart

_CLASSIFYING = ("cross_entropy", "nll_loss")
_ELEMENTWISE = (
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"),
    *("binary_cross_entropy_with_logits", "soft_margin_loss"),
)

_MOST_MEANS = 64
"""Of a backward."""


_SUMS = ("SumBackward0", "SumBackward1", "DotBackward0")
_REDUCED_TO_SUM = 2
"""``reduction="sum"``, as nodes of losses hold it."""
_SELECTIONS = ("IndexBackward0", "MaskedSelectBackward0")
_TERMS = ("AddBackward0", "SubBackward0")
_SAME = ("NegBackward0", "ToCopyBackward0", "ViewBackward0", "SqueezeBackward0", "CloneBackward0")
_MOST_NODES = 64
_MOST_OF_MEAN = 16
_NODES = {"cross_entropy": "nllloss", "nll_loss": "nllloss", "l1_loss": "mean"}
"""The nodes of functions that have no node of their name."""
_WHOLE = 1e-3
"""How far a count may be from a whole number, where a small number keeps it from being zero."""


def install(session: Session) -> None:
    """Watch the functions of torch.nn.functional; the modules of torch.nn go through them."""
    losses = _Losses(session)
    for name in (*_CLASSIFYING, *_ELEMENTWISE):
        session.patch_function(("torch.nn.functional",), name, functools.partial(losses.watch, name))


class _Losses(TrainingPart):
    depth = 0
    """Calls under way: some call others."""

    def watch(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
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

    def _briefly(self, original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        return original(*args, **kwargs) if self.training.quiet else IN_FULL

    def _begin(self, args: Args, kwargs: Kwargs) -> Any:
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
        is_sum = given.get("reduction") == "sum" and given.get("weight") is None
        if (
            not (is_sum or given.get("reduction") == "mean")
            or given.get("reduce") is False
            or given.get("size_average") is False
        ):
            return
        if (counted := self._count(name, given)) is None:
            return
        count, elements = counted
        ignored = given["ignore_index"] if count < elements else None
        if len(self.training.means) < _MOST_MEANS:
            self.training.means.append(MeanLoss(self.session.here(), name, count, ignored, is_sum=is_sum))

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


@dataclass(frozen=True)
class Divisor:
    """What a sum was divided by."""

    count: int = 0
    """The largest whole number on the way; 0 while there was none."""
    factor: float = 1.0
    """What it was multiplied by besides."""

    def divided(self, number: float) -> Divisor:
        whole = round(number)
        if whole <= self.count or abs(number - whole) > _WHOLE:
            return replace(self, factor=self.factor / number)
        return Divisor(whole, self.factor / (self.count or 1))


def divisors(torch: Any, node: Any, *, wait: bool) -> Iterator[Divisor]:
    """The terms of a loss, from its last operation, its ``grad_fn``, on; ``wait`` reads numbers of devices, too."""
    waiting = [(node, Divisor())]
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        node, so_far = waiting.pop()
        name = type(node).__name__
        above = [function for function, _ in node.next_functions if function is not None] if node else []
        if name in _TERMS:
            waiting.extend((function, so_far) for function in reversed(above))
        elif name in _SAME:
            waiting.extend((function, so_far) for function in above)
        elif name in ("MulBackward0", "DivBackward0") and len(above) == 1:
            divided = _scaled(torch, node, so_far, wait)
            waiting.extend([(above[0], divided)] if divided else [])
        elif name in _SUMS or getattr(node, "_saved_reduction", None) == _REDUCED_TO_SUM:
            divided = so_far
            if not so_far.count and above and type(above[0]).__name__ == "DivBackward0":
                divided = _scaled(torch, above[0], so_far, wait) or so_far
            if divided.count:
                yield divided
        elif name == "MeanBackward0" and _is_of_selected(node):
            yield so_far.divided(int(node._saved_self_sym_numel))


def _is_of_selected(mean: Any) -> bool:
    """Whether a mean is one over elements that an index or a mask chose, or over what was computed of each."""
    sizes = tuple(mean._saved_self_sym_sizes)
    waiting = [function for function, _ in mean.next_functions]
    for _ in range(_MOST_OF_MEAN):
        node: Any = waiting.pop() if waiting else None
        if not (results := getattr(node, "_input_metadata", None)) or tuple(results[0].shape) != sizes:
            continue
        if type(node).__name__ in _SELECTIONS:
            return True
        waiting.extend(function for function, _ in node.next_functions)
    return False


def factors_of_means(
    torch: Any, node: Any, scales: list[float], *, wait: bool, sums: bool = False
) -> Iterator[tuple[str, float | None]]:
    """What each mean among the terms of a loss is multiplied by, GradScalers apart, and the class of its node.

    None where a number on the way cannot be read.

    Args:
        torch: the user's.
        node: the loss's ``grad_fn``.
        scales: of GradScalers.
        wait: read numbers of devices, too.
        sums: the same of losses that are sums.
    """
    of_mean, reduction = ("", _REDUCED_TO_SUM) if sums else ("MeanBackward0", 1)
    waiting: list[tuple[Any, float | None]] = [(node, 1.0)]
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        node, factor = waiting.pop()
        name = type(node).__name__
        if name == of_mean or getattr(node, "_saved_reduction", None) == reduction:
            yield name, factor
            continue
        above = [function for function, _ in node.next_functions if function is not None] if node else []
        if name in (*_TERMS, *_SAME):
            waiting.extend((function, factor) for function in reversed(above))
        elif name in ("MulBackward0", "DivBackward0") and len(above) == 1:
            if (scaled := _scaled(torch, node, Divisor(), wait)) and factor is not None:
                more = scaled.factor / (scaled.count or 1)
                factor = factor if more in scales else factor * more
            waiting.append((above[0], factor if scaled else None))


def scale_means(means: list[MeanLoss], factors: list[tuple[str, float | None]]) -> Iterator[MeanLoss]:
    """The means that functions of torch took, with what the loss multiplies each by; without those of which that
    cannot be read. Those are left as they are that cannot be told apart in the loss."""
    for function in dict.fromkeys(mean.function for mean in means):
        of_function = [mean for mean in means if mean.function == function]
        node = _NODES.get(function or "", (function or "").replace("_", ""))
        known = [factor for name, factor in factors if name.lower().startswith(node)]
        if len(known) != len(of_function):
            yield from of_function
            continue
        for mean, factor in zip(of_function, known, strict=True):
            if factor is not None:
                mean.factor = factor
                yield mean


def _scaled(torch: Any, node: Any, so_far: Divisor, wait: bool) -> Divisor | None:
    """With the number that this node multiplies or divides by; None where it has none, or one that cannot be read."""
    divides = type(node).__name__ == "DivBackward0"
    first = node.next_functions[0][0] is not None
    if divides and not first:
        return None
    if not (number := _number(torch, node, "other" if first else "self", wait)):
        return None
    return so_far.divided(number) if divides else replace(so_far, factor=so_far.factor * number)


def _number(torch: Any, node: Any, name: str, wait: bool) -> float | None:
    # To read what was saved under hooks would run them, and those of a checkpoint compute its part again.
    raw = getattr(node, f"_raw_saved_{name}", None)
    if getattr(raw, "unpack_hook", raw) is not None:
        return None
    value = getattr(node, f"_saved_{name}")
    if type(value) is not torch.Tensor or value.dim() or value.requires_grad or value.is_complex():
        return None
    return float(value) if wait or value.device.type == "cpu" else None
