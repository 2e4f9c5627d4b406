"""nn.DataParallel, attention backends, compiled code and profiler activities that only GPUs have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name under which everybody knows it

from .device_mode import Placement
from .devices import mark
from .plain_calls import plain
from .replaced_attributes import Patches


def install(placement: Placement, patches: Patches, note: Callable[[str, str], None]) -> None:
    """Let what would need kernels of a GPU take its way on the CPU."""
    _data_parallel(patches, note)
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


def _mark_first(
    placement: Placement, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    result = plain(func, args, kwargs)
    gpu = placement.devices.of(args[0])
    if gpu is not None:
        mark(result[0], gpu)
    return result


def _histogram(
    placement: Placement, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The CPU counts floats alone."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        values = args[0] if args else kwargs["input"]
        if values.is_floating_point():
            return plain(func, args, kwargs)
        rest = {name: value for name, value in kwargs.items() if name != "input"}
        return plain(func, (values.double(), *args[1:]), rest).to(values.dtype)

    return placement.place(counted, args, kwargs)


def _data_parallel(patches: Patches, note: Callable[[str, str], None]) -> None:
    def forward(parallel: Any, *inputs: Any, **kwargs: Any) -> Any:
        note("data parallel", "nn.DataParallel runs its module on one simulated GPU, with the whole batch")
        return plain(parallel.module, inputs, kwargs)

    patches.set(torch.nn.DataParallel, "forward", forward)


def _attention(placement: Placement) -> None:
    """A script may allow only flash attention, which the CPU cannot always do: the plain way is right too."""
    backends: Any = torch.backends.cuda
    attention = F.scaled_dot_product_attention
    rule = placement.rules[attention]

    def attend(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        allowed = backends.math_sdp_enabled()
        backends.enable_math_sdp(True)
        try:
            return rule(func, args, kwargs)
        finally:
            backends.enable_math_sdp(allowed)

    placement.rules[attention] = attend


def _profiler(patches: Patches, note: Callable[[str, str], None]) -> None:
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


def _compile(patches: Patches, note: Callable[[str, str], None]) -> None:
    """Compiling for the CPU takes minutes and says nothing about a GPU: torch.compile runs the code as it is."""

    @functools.wraps(torch.compile)
    def compile(model: Any = None, **options: Any) -> Any:
        note("compile", "torch.compile is disabled: the code runs eagerly")
        if model is None:
            return lambda model: compile(model, **options)
        return Eager(model) if isinstance(model, torch.nn.Module) else model

    patches.set(torch, "compile", compile)
    patches.set(torch.nn.Module, "compile", lambda module, *args, **options: compile(lambda: None) and None)
