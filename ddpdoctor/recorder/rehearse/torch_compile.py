"""torch.compile runs the code as it is: compiling for the CPU takes minutes and says nothing about a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .plain_calls import plain
from .replaced_attributes import Patches


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


def install(patches: Patches, note: Callable[[str, str], None]) -> None:
    """Replace torch.compile, for functions, modules and as a decorator with arguments."""

    @functools.wraps(torch.compile)
    def compile(model: Any = None, **options: Any) -> Any:
        note("compile", "torch.compile is disabled: the code runs eagerly")
        if model is None:
            return lambda model: compile(model, **options)
        return Eager(model) if isinstance(model, torch.nn.Module) else model

    patches.set(torch, "compile", compile)
    patches.set(torch.nn.Module, "compile", lambda module, *args, **options: compile(lambda: None) and None)
