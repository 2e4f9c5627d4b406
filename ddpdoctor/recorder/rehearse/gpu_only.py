"""nn.DataParallel, SyncBatchNorm, attention backends, compiled code and profiler activities that only GPUs have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name under which everybody knows it

from ..patch import Args, Kwargs
from .devices import Placement, mark
from .replacing import Note, Patches, plain

Tensor = torch.Tensor


def install(placement: Placement, patches: Patches, note: Note) -> None:
    """Let what would need kernels of a GPU take its way on the CPU."""
    _data_parallel(patches, note)
    _sync_batchnorm(placement)
    _attention(placement)
    _profiler(patches, note)
    _compile(patches, note)
    # Weights of an RNN lie in one piece only for cuDNN: a torch built for CUDA would be asked to do that, and one that
    # is not would warn.
    placement.rules[torch._cudnn_rnn_flatten_weight] = lambda func, args, kwargs: None
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: tensor.is_cuda)
    # The length of each step is the CPU's business, on GPUs too.
    for pack in (torch._VF._pack_padded_sequence, torch._VF._pad_packed_sequence):
        placement.rules[pack] = functools.partial(_mark_first, placement)
    for histc in (torch.histc, torch.Tensor.histc):
        placement.rules[histc] = functools.partial(_histogram, placement)


def _mark_first(placement: Placement, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    result = plain(func, args, kwargs)
    if (gpu := placement.devices.of(args[0])) is not None:
        mark(result[0], gpu)
    return result


def _histogram(placement: Placement, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """The CPU counts floats alone."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        values = args[0] if args else kwargs["input"]
        if values.is_floating_point():
            return plain(func, args, kwargs)
        rest = {name: value for name, value in kwargs.items() if name != "input"}
        return plain(func, (values.double(), *args[1:]), rest).to(values.dtype)

    return placement.place(counted, args, kwargs)


def _data_parallel(patches: Patches, note: Note) -> None:
    def forward(parallel: Any, *inputs: Any, **kwargs: Any) -> Any:
        note("data parallel", "nn.DataParallel runs its module on one simulated GPU, with the whole batch")
        return plain(parallel.module, inputs, kwargs)

    patches.set(torch.nn.DataParallel, "forward", forward)


def _attention(placement: Placement) -> None:
    """A script may allow only flash attention, which the CPU cannot always do: the plain way is right too."""
    backends: Any = torch.backends.cuda
    attention = F.scaled_dot_product_attention
    rule = placement.rules[attention]

    def attend(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        allowed = backends.math_sdp_enabled()
        backends.enable_math_sdp(True)
        try:
            return rule(func, args, kwargs)
        finally:
            backends.enable_math_sdp(allowed)

    placement.rules[attention] = attend


def _profiler(patches: Patches, note: Note) -> None:
    """A profiler that is asked for GPU activity would wait for a driver."""
    cpu = torch.profiler.ProfilerActivity.CPU

    def init(original: Any, profiler: Any, *args: Any, activities: Any = None, **kwargs: Any) -> None:
        note("profiler", "profilers see only the CPU")
        kwargs.pop("use_cuda", None)
        plain(original, (profiler, *args), {**kwargs, "activities": [cpu]})

    patches.wrap(torch.profiler.profile, "__init__", init)


class Eager(torch.nn.Module):
    """A module that was given to torch.compile: the same, under the name that compiled modules have in checkpoints."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = module
        self.train(module.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return plain(self._orig_mod, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)


def _compile(patches: Patches, note: Note) -> None:
    """Compiling for the CPU takes minutes and says nothing about a GPU: torch.compile runs the code as it is."""

    @functools.wraps(torch.compile)
    def compile(model: Any = None, **options: Any) -> Any:
        note("compile", "torch.compile is disabled: the code runs eagerly")
        if model is None:
            return lambda model: compile(model, **options)
        return Eager(model) if isinstance(model, torch.nn.Module) else model

    patches.set(torch, "compile", compile)
    patches.set(torch.nn.Module, "compile", lambda module, *args, **options: compile(lambda: None) and None)


def _sync_batchnorm(placement: Placement) -> None:
    """Its forward and backward run as they are, with the five kernels that only GPUs have written out. The statistics
    travel through real collectives, so what SyncBatchNorm computes here is what it computes on GPUs."""
    kernels: dict[Any, Callable[..., Any]] = {
        torch.batch_norm_stats: _stats,
        torch.batch_norm_gather_stats_with_counts: _gather,
        torch.batch_norm_elemt: _normalize,
        torch.batch_norm_backward_reduce: _reduce,
        torch.batch_norm_backward_elemt: _gradient,
    }
    for kernel, written in kernels.items():
        placement.rules[kernel] = lambda _, *call, written=written: placement.place(written, *call)


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
