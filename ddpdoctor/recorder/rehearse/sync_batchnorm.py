"""SyncBatchNorm: its forward and backward run as they are, with the five kernels that only GPUs have written out.

The statistics travel through real collectives, so what SyncBatchNorm computes here is what it computes on GPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .device_mode import Placement, Rule
from .replaced_attributes import Patches

Tensor = torch.Tensor


def install(placement: Placement, patches: Patches) -> None:
    """Answer the kernels where they are called on simulated GPUs."""
    kernels: dict[Any, Callable[..., Any]] = {
        torch.batch_norm_stats: _stats,
        torch.batch_norm_gather_stats_with_counts: _gather,
        torch.batch_norm_elemt: _normalize,
        torch.batch_norm_backward_reduce: _reduce,
        torch.batch_norm_backward_elemt: _gradient,
    }
    for kernel, written_out in kernels.items():
        placement.rules[kernel] = _instead(placement, written_out)


def _instead(placement: Placement, written_out: Callable[..., Any]) -> Rule:
    return lambda func, args, kwargs: placement.place(written_out, args, kwargs)


def _rest(input: Tensor) -> list[int]:
    """Every dimension but that of the channels."""
    return [0, *range(2, input.dim())]


def _wide(values: Tensor, like: Tensor) -> Tensor:
    """One value for each channel, shaped to meet an input."""
    return values.float().view(1, -1, *([1] * (like.dim() - 2)))


def _stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    mean = input.float().mean(_rest(input))
    variance = input.float().var(_rest(input), unbiased=False)
    return mean, (variance + eps).rsqrt()


def _gather(
    input: Tensor,
    means: Tensor,
    invstds: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Mean and deviation over all ranks, from those of each; the running statistics follow."""
    weights = counts.float().view(-1, 1)
    total = weights.sum()
    mean = (means.float() * weights).sum(0) / total
    second = ((invstds.float().pow(-2) - eps + (means.float() - mean).square()) * weights).sum(0)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(momentum * mean)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(momentum * second / (total - 1))
    return mean, (second / total + eps).rsqrt()


def _normalize(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    output = (input.float() - _wide(mean, input)) * _wide(invstd, input)
    if weight is not None:
        output = output * _wide(weight, input)
    if bias is not None:
        output = output + _wide(bias, input)
    return output.to(input.dtype)


def _reduce(
    grad: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, *wanted: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sums of this rank that the gradient of the input needs, and the gradients of weight and bias."""
    sum_dy = grad.float().sum(_rest(grad))
    sum_dy_xmu = (grad.float() * (input.float() - _wide(mean, input))).sum(_rest(grad))
    dtype = mean.dtype if weight is None else weight.dtype
    return sum_dy, sum_dy_xmu, (sum_dy_xmu * invstd).to(dtype), sum_dy.to(dtype)


def _gradient(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    counts: Tensor,
) -> Tensor:
    total: Any = counts.sum().float()
    centred = input.float() - _wide(mean, input)
    slope = centred * _wide(invstd.float().square() * sum_dy_xmu / total, input)
    scale = invstd if weight is None else invstd * weight
    return ((grad.float() - _wide(sum_dy / total, input) - slope) * _wide(scale, input)).to(input.dtype)
