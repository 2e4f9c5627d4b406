"""ReduceOp.AVG for a gloo that lacks it: torch 2.4 refuses it, or sums without a word."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

from .replaced_attributes import Patches

_NATIVE = (2, 13)
"""The first torch whose gloo was seen to average."""
_RESULTS = {"all_reduce": "tensor", "reduce": "tensor", "reduce_scatter_tensor": "output"}


class _Averaged:
    """The work of a sum that is divided once it was waited for."""

    def __init__(self, work: Any, tensor: torch.Tensor, ranks: int) -> None:
        self._work = work
        self._divide: Callable[[], Any] | None = lambda: tensor.div_(ranks)

    def wait(self, *args: Any) -> Any:
        done = self._work.wait(*args)
        if self._divide is not None:
            self._divide()
            self._divide = None
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)


def install(patches: Patches) -> None:
    """Sum and divide where gloo does not average."""
    version = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    if not torch.distributed.is_available() or version >= _NATIVE:
        return
    home = torch.distributed.distributed_c10d
    for name, result in _RESULTS.items():
        replaced = _averaging(getattr(home, name), result)
        for module in (home, torch.distributed):
            patches.set(module, name, replaced)


def _averaging(original: Callable[..., Any], result: str) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        if call.arguments["op"] != torch.distributed.ReduceOp.AVG:
            return original(*args, **kwargs)
        call.arguments["op"] = torch.distributed.ReduceOp.SUM
        work = original(*call.args, **call.kwargs)
        ranks = torch.distributed.get_world_size(call.arguments["group"])
        averaged = _Averaged(work, call.arguments[result], ranks)
        if work is not None:
            return averaged
        if torch.distributed.get_rank(call.arguments["group"]) >= 0:
            call.arguments[result].div_(ranks)
        return None

    return collective
