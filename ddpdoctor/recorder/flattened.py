"""Gradients or weights that a script has copied into one long tensor to reduce them in one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .digest import unseen

_FEWEST = 2
"""Values; one alone stands in many tensors by chance."""


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
