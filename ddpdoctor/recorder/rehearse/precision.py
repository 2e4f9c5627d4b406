"""What functions cast and draw on simulated GPUs: autocast, half precision, and streams of random numbers.

torch.autocast("cuda") only notes its state, so the functions that it casts on a GPU are cast here. Products of half
precision are computed as tensor cores do, from rounded inputs with sums in float32, then rounded: float16 overflows
as it will on the GPU, at the speed of float32 (the CPU's own float16 products take up to thirty times as long).
GradScaler runs as it is: its kernels exist for the CPU.

A simulated GPU has a random stream of its own, as a real one has: a script that seeds GPUs differently on each rank and
the CPU alike must find its CPU stream untouched by what it draws on GPUs. torch draws everything from the CPU's
generator here, so its state is exchanged around such functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name under which everybody knows it

from ..patch import Args, Kwargs
from .devices import Placement, Rule
from .replacing import Patches, plain, refuse

_HALF = (torch.float16, torch.bfloat16)
_OWNERS = (torch, torch.Tensor, F, torch.nn.init, torch._VF, torch.linalg)
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
_DRAWN = """
    rand randn randint randperm normal multinomial bernoulli poisson binomial rand_like randn_like randint_like
    normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ dropout dropout_ dropout1d
    dropout2d dropout3d alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ feature_alpha_dropout
    feature_alpha_dropout_ rrelu rrelu_ gumbel_softmax multi_head_attention_forward native_dropout lstm gru rnn_tanh
    rnn_relu fractional_max_pool2d fractional_max_pool3d trunc_normal_ xavier_uniform_ xavier_normal_
    kaiming_uniform_ kaiming_normal_ orthogonal_ sparse_ scaled_dot_product_attention
"""


def install(placement: Placement, patches: Patches) -> None:
    """Cast and draw as on a GPU, and compute half precision at the speed of float32."""
    patches.set(torch.cuda, "default_generators", _Generators(placement.devices.count))
    for owner in _OWNERS:
        for names, how in ((_DRAWN, Placement.place), (_LOWER, _lower), (_FLOAT32, _float32)):
            for name in names.split():
                if hasattr(owner, name):
                    placement.rules[getattr(owner, name)] = _rule(placement, name, how)
    placement.rules[F.binary_cross_entropy] = lambda *call: _refuse(placement, *call)
    _generator_class(placement, patches)


def _rule(placement: Placement, name: str, how: Callable[..., Any]) -> Rule:
    run = functools.partial(how, placement)
    if name not in _DRAWN.split():
        return run
    return lambda func, *given: _drawing(placement, lambda: run(func, *given), *given)


def _lower(placement: Placement, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A function that autocast runs in its lower precision."""
    if (target := _autocast()) is None:
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


class _Generators(Sequence[torch.Generator]):
    """One for each GPU that there is when it is asked for: scripts choose the visible ones after importing torch."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._made: list[torch.Generator] = []

    def __len__(self) -> int:
        return self._count()

    def __getitem__(self, index: Any) -> Any:
        for _ in range(len(self) - len(self._made)):
            self._made.append(torch.Generator())
            self._made[-1].seed()  # unseeded, GPUs draw other numbers in each process; a Generator the same
        return tuple(self._made[: len(self)])[index]


def _drawing(placement: Placement, call: Callable[[], Any], args: Args, kwargs: Kwargs) -> Any:
    """Run a call with the generator of the GPU that it draws on, where it draws on one."""
    index = placement.devices.index_of(kwargs.get("device"))
    if index is None and kwargs.get("device") is None:
        index = placement.gpu_of(args, kwargs)
    if index is None and placement.default is not None:
        index = placement.devices.index_of(placement.default)
    generators = torch.cuda.default_generators
    if index is None or kwargs.get("generator") is not None or index >= len(generators):
        return call()
    return _exchanged(generators[index], call)


def _exchanged(generator: torch.Generator, call: Callable[[], Any]) -> Any:
    shared = torch.default_generator
    before = shared.get_state()
    shared.set_state(generator.get_state())
    try:
        return call()
    finally:
        generator.set_state(shared.get_state())
        shared.set_state(before)


def _generator_class(placement: Placement, patches: Patches) -> None:
    """torch.Generator(device="cuda"): a CPU generator that says it is on the GPU."""
    plain = torch.Generator

    class Meta(type(plain)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, plain)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, plain)

    class Generator(plain, metaclass=Meta):  # type: ignore[valid-type,misc]
        def __new__(cls, device: Any = "cpu") -> Any:
            if (index := placement.devices.index_of(device)) is None:
                return plain(device)
            made = plain.__new__(cls)
            made._gpu = placement.devices.use(index)
            return made

        def __init__(self, device: Any = "cpu") -> None:
            """The device was taken when the object was made."""

        @property
        def device(self) -> torch.device:
            return torch.device("cuda", self._gpu)

        def clone_state(self) -> Any:
            other = Generator(self.device)
            other.set_state(self.get_state())
            return other

    Generator.__module__ = "torch"
    patches.set(torch, "Generator", Generator)
