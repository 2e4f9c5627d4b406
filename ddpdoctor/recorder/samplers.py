"""What can be told of a sampler by looking at it; none of its code is run."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from typing import Any

from .lengths import attribute

_INNER = ("batch_sampler", "sampler", "base_sampler", "_sampler", "dataset")
"""Attributes by which samplers hold the one that they wrap; ``dataset`` in those of PyTorch Lightning and catalyst."""
_RANK_NAMES = ("rank", "_rank", "process_index")
_REPLICAS_NAMES = ("num_replicas", "_num_replicas", "world_size", "_world_size", "num_processes")
_DEEPEST = 5


def chain(sampler: Any) -> Iterator[Any]:
    """A sampler and those that it wraps, the outermost first."""
    passed: list[int] = []
    while sampler is not None and id(sampler) not in passed and len(passed) < _DEEPEST:
        yield sampler
        passed.append(id(sampler))
        inner = (attribute(sampler, name) for name in _INNER)
        sampler = next((candidate for candidate in inner if _samples(candidate)), None)


def _samples(value: Any) -> bool:
    """Whether it is a sampler: something of a class of its own that is iterated and not indexed."""
    if value is None or hasattr(type(value), "__getitem__"):
        # What adapts a sampler to DistributedSampler is indexed, and holds the sampler.
        return attribute(value, "_sampler") is not None
    return hasattr(type(value), "__iter__") and hasattr(value, "__dict__")


def drawing(loader: Any) -> Any:
    """The sampler that matters: the one that divides among ranks, or else the innermost."""
    wrapped = [
        sampler for sampler in chain(loader._index_sampler) if not hasattr(type(sampler), "__getitem__")
    ]
    return next((sampler for sampler in wrapped if _place(sampler) is not None), wrapped[-1])


def describe(sampler: Any) -> dict[str, Any]:
    """Fields of a Sampler."""
    name = type(sampler).__name__
    place = _place(sampler)
    facts: dict[str, Any] = {
        "name": name,
        "distributed": place is not None,
        "shuffle": {"RandomSampler": True, "SubsetRandomSampler": True, "SequentialSampler": False}.get(name),
        "replacement": attribute(sampler, "replacement") is True,
    }
    if place is not None:
        facts["rank"], facts["replicas"] = place
    for field, names in (("seed", ("seed", "_seed")), ("total", ("total_size",))):
        facts[field] = _number(sampler, names)
    if inspect.getattr_static(sampler, "set_epoch", None) is not None:
        facts["epoch"] = _number(sampler, ("epoch", "_epoch"))
    flags = (attribute(sampler, name) for name in ("shuffle", "_shuffle"))
    flag = next((flag for flag in flags if flag is not None), None)
    facts["shuffle"] = flag if isinstance(flag, bool) else facts["shuffle"]
    return {key: value for key, value in facts.items() if value is not None}


def _place(sampler: Any) -> tuple[int, int] | None:
    rank, replicas = _number(sampler, _RANK_NAMES), _number(sampler, _REPLICAS_NAMES)
    return None if rank is None or replicas is None else (rank, replicas)


def _number(sampler: Any, names: tuple[str, ...]) -> int | None:
    for name in names:
        value = attribute(sampler, name)
        if isinstance(value, int) or type(value).__module__ in ("numpy", "torch"):
            try:
                return operator.index(value)
            except TypeError:
                continue
    return None
