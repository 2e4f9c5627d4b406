"""What can be told of a sampler without a line of the script's code: what it is, and the order in which it will draw.

torch's own samplers depend on generators and lengths alone, so copies of them draw the same order, without a trace in
any random stream. Any other order is learnt as the script itself draws it.
"""

from __future__ import annotations

import copy
import inspect
import operator
import time
from array import array
from collections.abc import Iterable, Iterator
from types import GeneratorType
from typing import Any

from .lengths import Lengths, attribute, is_plain

_INNER = ("batch_sampler", "sampler", "base_sampler", "_sampler", "dataset")
"""Attributes by which samplers hold the one that they wrap; ``dataset`` in those of PyTorch Lightning and catalyst."""
_RANK_NAMES = ("rank", "_rank", "process_index")
_REPLICAS_NAMES = ("num_replicas", "_num_replicas", "world_size", "_world_size", "num_processes")
_DEEPEST = 5


_MOST = 4_000_000
"""Samples of a pass."""
_SECONDS = 1.0
"""Of the CPU, for one pass; a million samples take half of it."""
_PATIENCE = 10.0
"""Seconds by the clock: long, since all ranks draw at once, and the machine may be busy."""
_PLAIN_ITERATORS: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))))
_OF_TORCH = (
    *("BatchSampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler"),
)
_TORCHS = ("torch.utils.data.sampler", "torch.utils.data.distributed")


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
    wrapped = [it for it in chain(loader._index_sampler) if not hasattr(type(it), "__getitem__")]
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


class Unforeseen(Exception):
    """The order cannot be known in advance."""


def foresee(torch: Any, iterator: Any, lengths: Lengths) -> tuple[array[int], int]:
    """The samples that a DataLoader's fresh iterator will draw, and its number of batches; or raises Unforeseen."""
    drawing = iterator._sampler_iter
    if type(drawing) in _PLAIN_ITERATORS:
        return _flatten(copy.copy(drawing))
    if not isinstance(drawing, GeneratorType) or inspect.getgeneratorstate(drawing) != inspect.GEN_CREATED:
        raise Unforeseen
    if torch.get_default_device().type != "cpu":
        raise Unforeseen  # seeds are then drawn from the device's stream
    twin = _twin(torch, iterator._index_sampler, lengths)
    before = torch.get_rng_state()
    try:
        return _flatten(iter(twin))
    finally:
        torch.set_rng_state(before)


def _twin(torch: Any, sampler: Any, lengths: Lengths) -> Any:
    """The same sampler with generators of its own, over numbers in place of the script's dataset. Raises Unforeseen
    where it is not torch's own, or holds what is not."""
    if type(sampler) in (list, tuple, range):
        return sampler
    if not _is_torchs_own(torch, type(sampler)):
        raise Unforeseen
    twin = copy.copy(sampler)
    held = vars(twin)
    for name, value in vars(sampler).items():
        if name in ("data_source", "dataset"):
            if (length := lengths.of(value)) is None:
                raise Unforeseen
            held[name] = range(length)
        elif name == "sampler":
            held[name] = _twin(torch, value, lengths)
        elif name == "generator" and value is not None:
            if type(value) is not torch.Generator or value.device.type != "cpu":
                raise Unforeseen
            held[name] = torch.Generator().set_state(value.get_state())
        elif name in ("indices", "weights") and not is_plain(value):
            raise Unforeseen
    return twin


def _is_torchs_own(torch: Any, kind: Any) -> bool:
    known = (torch.utils.data.DistributedSampler, *(getattr(torch.utils.data, name) for name in _OF_TORCH))
    return kind in known and kind.__iter__.__module__ in _TORCHS


def _flatten(batches: Iterable[Any]) -> tuple[array[int], int]:
    indices, count = array("q"), 0
    busy, deadline = time.thread_time() + _SECONDS, time.monotonic() + _PATIENCE
    for batch in batches:
        count += 1
        add_indices(indices, batch)
        late = count % 256 == 0 and (time.thread_time() > busy or time.monotonic() > deadline)
        if late or len(indices) > _MOST:
            raise Unforeseen
    return indices, count


def add_indices(indices: array[int], batch: Any) -> None:
    """Append one index to fetch, or several. Raises Unforeseen for what is no integer of Python, numpy or torch."""
    batch = batch if type(batch) in (list, tuple) else (batch,)
    kinds = set(map(type, batch))
    if not all(kind is int or kind.__module__ in ("numpy", "torch") for kind in kinds):
        raise Unforeseen  # an object of the script's own
    try:
        indices.fromlist(list(batch) if kinds == {int} else list(map(operator.index, batch)))
    except (TypeError, OverflowError):
        raise Unforeseen from None
