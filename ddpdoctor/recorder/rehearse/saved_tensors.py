"""Tensors saved for backward: hooks on them run inside a torch function, below the mode, and need it again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import checkpoint

from .device_mode import Placement, mode_stack
from .plain_calls import plain
from .replaced_attributes import Patches


def install(placement: Placement, patches: Patches) -> None:
    """Run the hooks under the mode, and let activation checkpoints compare what the bookkeeping does not blur."""
    hooks = torch.autograd.graph.saved_tensors_hooks
    original = hooks.__init__

    def init(context: Any, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]) -> None:
        original(context, _under(placement, pack_hook), _under(placement, unpack_hook))

    patches.set(hooks, "__init__", init)
    # A result is saved before it is marked and recomputed after: its device is no sign of anything.
    tests = checkpoint._allowed_determinism_checks_to_fns
    default = tests.get("default")
    if default is not None:
        tests["default"] = lambda tensor: {"shape": tensor.shape, "dtype": tensor.dtype}
        patches.on_undo(lambda: tests.update(default=default))


def _under(placement: Placement, hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(hook)
    def run(*args: Any) -> Any:
        if placement in mode_stack():
            return plain(hook, args)
        with placement:
            return plain(hook, args)

    return run
