"""Autocast and half precision on simulated GPUs.

torch.autocast("cuda") only notes its state, so the functions that it casts on a GPU are cast here. Products of half
precision are computed as tensor cores do, from rounded inputs with sums in float32, then rounded: float16 overflows
as it will on the GPU, at the speed of float32 (the CPU's own float16 products take up to thirty times as long).
GradScaler runs as it is: its kernels exist for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name under which everybody knows it

from .device_mode import Placement
from .random_streams import drawing
from .replacing import Patches, plain, refuse

_HALF = (torch.float16, torch.bfloat16)
_OWNERS = (torch, torch.Tensor, F, torch._VF, torch.linalg)
_LOWER = """
    linear matmul __matmul__ __rmatmul__ mm bmm mv addmm addmv addr addbmm baddbmm chain_matmul multi_dot einsum
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d prelu
    scaled_dot_product_attention multi_head_attention_forward lstm gru rnn_tanh rnn_relu lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell
"""
_FLOAT32 = """
    exp expm1 log log10 log1p log2 pow __pow__ __rpow__ reciprocal rsqrt sinh cosh tan acos asin erfinv softmax
    log_softmax softmin softplus logsumexp layer_norm group_norm rms_norm norm renorm cosine_similarity cdist pdist
    dist cumsum cumprod sum prod mse_loss l1_loss smooth_l1_loss huber_loss nll_loss cross_entropy kl_div ctc_loss
    binary_cross_entropy_with_logits poisson_nll_loss gaussian_nll_loss hinge_embedding_loss margin_ranking_loss
    triplet_margin_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss soft_margin_loss
    cosine_embedding_loss interpolate grid_sample
"""
_DRAWING = {
    "scaled_dot_product_attention",
    "multi_head_attention_forward",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
}


def install(placement: Placement, patches: Patches) -> None:
    """Cast as autocast does on a GPU, and compute half precision at the speed of float32."""
    for owner in _OWNERS:
        _rule(placement, owner, _LOWER, _lower)
        _rule(placement, owner, _FLOAT32, _float32)
    placement.rules[F.binary_cross_entropy] = lambda *call: _refuse(placement, *call)


def _rule(placement: Placement, owner: Any, names: str, how: Callable[..., Any]) -> None:
    for name in names.split():
        if not hasattr(owner, name):
            continue
        draws = name in _DRAWING

        def rule(func: Any, args: Any, kwargs: Any, draws: bool = draws) -> Any:
            if draws:
                return drawing(placement, lambda: how(placement, func, args, kwargs), args, kwargs)
            return how(placement, func, args, kwargs)

        placement.rules[getattr(owner, name)] = rule


def _lower(placement: Placement, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function that autocast runs in its lower precision."""
    target = _autocast()
    if target is None:
        target = next((tensor.dtype for tensor in _floats(args)), None)
        if target not in _HALF:
            return placement.place(func, args, kwargs)
    if placement.gpu_of(args, kwargs) is None:
        return placement.place(func, args, kwargs)

    def rounded(*args: Any, **kwargs: Any) -> Any:
        result = plain(func, _cast(args, target, exact=True), _cast(kwargs, target, exact=True))
        return _cast(result, target)

    return placement.place(rounded, args, kwargs)


def _float32(placement: Placement, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function that autocast runs in float32."""
    if _autocast() is None or placement.gpu_of(args, kwargs) is None:
        return placement.place(func, args, kwargs)

    def widened(*args: Any, **kwargs: Any) -> Any:
        return plain(func, _cast(args, torch.float32), _cast(kwargs, torch.float32))

    return placement.place(widened, args, kwargs)


def _refuse(placement: Placement, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """On a GPU autocast refuses this loss, because its gradient overflows in float16."""
    if _autocast() is not None and placement.gpu_of(args, kwargs) is not None:
        refuse(
            RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
                "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
                "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
                "or torch.nn.BCEWithLogitsLoss."
            )
        )
    return placement.place(func, args, kwargs)


def _autocast() -> torch.dtype | None:
    """What autocast casts to on GPUs; None outside it."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


def _floats(values: Any) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                yield value
        elif isinstance(value, (tuple, list)):
            yield from _floats(value)


def _cast(value: Any, dtype: torch.dtype | None, exact: bool = False) -> Any:
    """Round floating point tensors, however nested; with ``exact`` they are float32 again afterwards."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point() or value.dtype is torch.float64:
            return value
        rounded = value.to(dtype)
        return rounded.float() if exact else rounded
    if type(value) in {tuple, list}:
        return type(value)(_cast(element, dtype, exact) for element in value)
    if type(value) is dict:
        return {name: _cast(element, dtype, exact) for name, element in value.items()}
    return value
