"""Which modules of a model act by their mode, and are in eval mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MOST_NAMES = 32


def in_eval_mode(
    torch: Any, root: Any, modules: list[Any], is_foreign: Callable[[str], bool]
) -> tuple[str, ...] | None:
    """The outermost modules in which all that act by their mode are in eval mode: ``("",)`` where the whole model is.

    Args:
        root: the model.
        modules: it and those in it.
        is_foreign: whether a file belongs to a library: what its modules do by their mode is not known.

    Returns:
        None where no module acts by its mode.
    """
    acting = {id(module) for module in modules if _acts(torch, module, is_foreign)}
    if not acting:
        return None
    evaluating = {id(module) for module in modules if not module.training} & acting
    return tuple(_outermost(root, acting, evaluating)[:_MOST_NAMES]) if evaluating else ()


def _outermost(root: Any, acting: set[int], evaluating: set[int]) -> list[str]:
    """The names of the outermost modules that hold acting ones, all of them in eval mode."""
    names: list[str] = []
    known: set[int] = set()

    def visit(module: Any, name: str) -> tuple[int, int]:
        """Count those that act in a module, and those of them in eval mode; name it, and not what is in it."""
        known.add(id(module))
        count, held, first = int(id(module) in acting), int(id(module) in evaluating), len(names)
        for part, child in module._modules.items():
            if child is not None and id(child) not in known:
                more, of_them = visit(child, f"{name}.{part}" if name else part)
                count, held = count + more, held + of_them
        if count and count == held:
            names[first:] = [name]
        return count, held

    visit(root, "")
    return names


def _acts(torch: Any, module: Any, is_foreign: Callable[[str], bool]) -> bool:
    """Whether a forward computes something else in eval mode."""
    nn = torch.nn
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        return bool(module.dropout > 0)
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return bool(module.track_running_stats)
    code = getattr(type(module).forward, "__code__", None)
    return code is not None and "training" in code.co_names and not is_foreign(code.co_filename)
