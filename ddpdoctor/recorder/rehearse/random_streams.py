"""Random numbers: a simulated GPU has a stream of its own, as a real one has.

A script that seeds GPUs differently on each rank and the CPU alike must find its CPU stream untouched by what it draws
on GPUs. torch draws everything from the CPU's generator here, so its state is exchanged around such functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name under which everybody knows it

from .device_mode import Placement
from .replacing import Patches

_DRAWING = """
    rand randn randint randperm normal multinomial bernoulli poisson binomial rand_like randn_like randint_like
    normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ dropout dropout_ dropout1d
    dropout2d dropout3d alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ feature_alpha_dropout
    feature_alpha_dropout_ rrelu rrelu_ gumbel_softmax multi_head_attention_forward native_dropout lstm gru rnn_tanh
    rnn_relu fractional_max_pool2d fractional_max_pool3d trunc_normal_ xavier_uniform_ xavier_normal_
    kaiming_uniform_ kaiming_normal_ orthogonal_ sparse_
"""


def install(placement: Placement, patches: Patches) -> None:
    """Give every simulated GPU its generator, and torch.Generator the device cuda."""
    patches.set(torch.cuda, "default_generators", _Generators(placement.devices.count))

    def draw(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return drawing(placement, lambda: placement.place(func, args, kwargs), args, kwargs)

    for owner in (torch, torch.Tensor, F, torch.nn.init, torch._VF):
        for name in _DRAWING.split():
            if hasattr(owner, name):
                placement.rules[getattr(owner, name)] = draw
    _generator_class(placement, patches)


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
            self._made[
                -1
            ].seed()  # unseeded, GPUs draw other numbers in each process; a new Generator the same
        return tuple(self._made[: len(self)])[index]


def drawing(
    placement: Placement, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
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
            index = placement.devices.index_of(device)
            if index is None:
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
