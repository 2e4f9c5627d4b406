"""Gathers into one tensor: under autograd gloo refuses to write into its own views of it, which NCCL never does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .replaced_attributes import Patches

_NAMES = ("all_gather_into_tensor", "_all_gather_base", "all_gather_single")


def install(patches: Patches) -> None:
    """Keep autograd out of them, as NCCL does."""
    if not torch.distributed.is_available():
        return
    home = torch.distributed.distributed_c10d
    for name in _NAMES:
        if hasattr(home, name):
            replaced = _without_gradient(getattr(home, name))
            for module in (home, torch.distributed):
                patches.set(module, name, replaced)


def _without_gradient(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def gather(*args: Any, **kwargs: Any) -> Any:
        return original(
            *map(_detached, args), **{name: _detached(argument) for name, argument in kwargs.items()}
        )

    return gather


def _detached(given: Any) -> Any:
    carries = isinstance(given, torch.Tensor) and given.requires_grad
    return given.detach() if carries else given
