"""Which loaders read other samples on each rank, and what of a value is its size alone."""

from __future__ import annotations

import ast

from ddpdoctor.program import Expression

_SIZES = frozenset({"size", "numel", "dim", "nelement", "__len__"})
_SIZE_ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "device", "type", "is_cuda"})
_KINDS = frozenset(
    {"builtins.len", "builtins.isinstance", "builtins.hasattr", "builtins.type", "builtins.callable"}
)
_SAMPLERS = ("sampler", "batch_sampler")


def divides(loader: Expression) -> bool:
    """Whether a loader reads other samples on each rank, or in another order."""
    node = loader.node
    if not isinstance(node, ast.Call) or any(it.arg is None for it in node.keywords) or len(node.args) > 2:
        return False
    given = {it.arg: it.value for it in node.keywords}
    shuffle = given.get("shuffle")
    shuffles = isinstance(shuffle, ast.Constant) and shuffle.value is True
    return shuffles or any(
        not isinstance(given.get(name, ast.Constant(None)), ast.Constant) for name in _SAMPLERS
    )


def is_size(value: Expression) -> bool:
    node = value.node
    if isinstance(node, ast.Attribute):
        return node.attr in _SIZE_ATTRIBUTES
    return value.is_call and (value.method in _SIZES or not value.called.isdisjoint(_KINDS))
