"""Foresees the order in which a pass will draw its samples, without a trace in any random stream.

A sampler is asked in advance only where that is harmless. Those of torch depend on generators alone, which are put
back afterwards. Of any other, a twin is asked, a copy of all that iterating could change, and only where its code
names nothing that reaches beyond the process. What cannot be foreseen is learnt as it is drawn.
"""

from __future__ import annotations

import copy
import inspect
import operator
import random
import sys
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, GeneratorType
from typing import Any

from . import samplers

_MOST = 4_000_000
"""Samples of a pass."""
_SECONDS = 1.0
"""Of the CPU, for one pass; a million samples take half of it."""
_PATIENCE = 10.0
"""Seconds by the clock: long, since all ranks draw at once, and the machine may be busy."""
_MOST_COPIED = 1_000_000
"""Elements of lists, and eighths of bytes of tensors, that a twin may hold."""
_PLAIN_ITERATORS: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))))
_OWN = ("BatchSampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")
_REACHING = frozenset(
    (
        *("all_reduce", "reduce", "broadcast", "broadcast_object_list", "all_gather", "all_gather_object"),
        *("all_gather_into_tensor", "gather", "gather_object", "scatter", "scatter_object_list", "barrier"),
        *("monitored_barrier", "send", "recv", "isend", "irecv", "sync_random_seed", "shared_random_seed"),
        *("open", "print", "input", "sleep", "system", "Popen", "run", "write", "put", "acquire", "urlopen"),
        *("cuda", "load", "save"),
    )
)
"""Names that code may not use to be run in advance."""


class Unforeseen(Exception):
    """The order cannot be known in advance."""


def foresee(torch: Any, iterator: Any) -> tuple[array[int], int]:
    """The samples that a DataLoader's iterator, which has drawn nothing yet, will draw, and the number of batches.

    Raises:
        Unforeseen: that cannot be told.
    """
    drawing, source = iterator._sampler_iter, iterator._index_sampler
    if type(drawing) in _PLAIN_ITERATORS:
        return _flatten(copy.copy(drawing))
    if not isinstance(drawing, GeneratorType) or inspect.getgeneratorstate(drawing) != inspect.GEN_CREATED:
        raise Unforeseen
    if torch.get_default_device().type != "cpu":
        raise Unforeseen  # seeds are then drawn from the device's stream
    links = list(samplers.chain(source))
    if all(_is_torchs_own(torch, one) and _restarts(one, links) for one in links):
        generators = [generator for one in links if (generator := getattr(one, "generator", None))]
        with unchanged(torch, generators):
            return _flatten(iter(source))
    twin = _Twins(torch, iterator._dataset).of(source)
    with unchanged(torch, ()):
        return _flatten(iter(twin))


def _is_torchs_own(torch: Any, sampler: Any) -> bool:
    kind = type(sampler)
    if kind is torch.utils.data.DistributedSampler:
        return True
    return kind.__module__ == "torch.utils.data.sampler" and kind.__name__ in _OWN


def _restarts(sampler: Any, links: list[Any]) -> bool:
    """Whether what it wraps can be iterated more than once; a generator that was given as a sampler cannot."""
    inner = vars(sampler).get("sampler")
    return inner is None or any(inner is one for one in links) or isinstance(inner, list | tuple | range)


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
    """Append what a DataLoader was told to fetch: one index or several.

    Raises:
        Unforeseen: these are no integers.
    """
    try:
        if isinstance(batch, list | tuple):
            indices.extend(map(operator.index, batch))
        else:
            indices.append(operator.index(batch))
    except (TypeError, OverflowError):
        raise Unforeseen from None


@contextmanager
def unchanged(torch: Any, generators: Iterable[Any]) -> Iterator[None]:
    """Put every random stream back to where it was."""
    kept = [(generator, generator.get_state()) for generator in generators]
    cpu, python = torch.get_rng_state(), random.getstate()
    numpy = sys.modules.get("numpy.random")
    state = numpy.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(state)
        for generator, before in kept:
            generator.set_state(before)


def _only_local(kind: type) -> None:
    """Look through the code that iterating runs, as far as names lead; all of a class that is indexed.

    Raises:
        Unforeseen: it uses a name that reaches beyond the process.
    """
    indexed = [getattr(kind, name) for name in vars(kind) if name != "__init__"]
    iterated = getattr(kind, "__iter__", None)
    waiting: list[Any] = [iterated] if iterated else indexed
    seen: set[Any] = set()
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        names = set(_names(function.__code__))
        if len(seen) > 50 or names & _REACHING:
            raise Unforeseen
        waiting += [found for name in names if (found := _own_function(kind, function, name))]


def _own_function(kind: type, user: FunctionType, name: str) -> Any:
    found = getattr(kind, name, None) or user.__globals__.get(name)
    module = getattr(found, "__module__", None) or ""
    return found if callable(found) and not module.startswith(("torch.", "numpy", "random")) else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


class _Twins:
    """Copies all of a sampler that iterating could change; the dataset and what cannot change is shared."""

    def __init__(self, torch: Any, dataset: Any) -> None:
        self.torch = torch
        self.left = _MOST_COPIED
        self.made: dict[int, Any] = {id(dataset): dataset}

    def of(self, value: Any) -> Any:
        """The twin of a value.

        Raises:
            Unforeseen: it is of a kind that is not known to be safe to copy or to share, or too large.
        """
        if id(value) not in self.made:
            self.made[id(value)] = self._twin(value)
        return self.made[id(value)]

    def _twin(self, value: Any) -> Any:
        torch = self.torch
        if self._may_be_shared(value):
            return value
        if isinstance(value, torch.Generator):
            return torch.Generator(value.device).set_state(value.get_state())
        if isinstance(value, torch.Tensor):
            self._take(value.numel())
            return value.clone()
        if type(value).__module__ in ("numpy", "random", "numpy.random._generator", "numpy.random.mtrand"):
            self._take(getattr(value, "size", 1))
            return copy.deepcopy(value)
        if type(value) in (list, tuple, set, dict):
            return self._container(value)
        adapts = isinstance(value, torch.utils.data.Dataset)
        if not (adapts or hasattr(type(value), "__iter__")) or isinstance(value, Iterator):
            raise Unforeseen
        if not _is_torchs_own(torch, value):
            _only_local(type(value))
        twin = self.made[id(value)] = copy.copy(value)
        vars(twin).update({name: self.of(one) for name, one in vars(value).items()})
        return twin

    def _may_be_shared(self, value: Any) -> bool:
        data, nn = self.torch.utils.data, self.torch.nn
        shared = (str, bytes, bool, int, float, type(None), type, range, FunctionType, self.torch.device)
        if isinstance(value, data.Dataset):  # what adapts a sampler to DistributedSampler draws from it
            return not any(isinstance(one, data.Sampler) for one in vars(value).values())
        return isinstance(value, (*shared, data.DataLoader, nn.Module))

    def _take(self, elements: int) -> None:
        self.left -= elements
        if self.left < 0:
            raise Unforeseen

    def _container(self, value: Any) -> Any:
        self._take(len(value))
        if isinstance(value, dict):
            return {key: self.of(one) for key, one in value.items()}
        if all(isinstance(one, int | float | str) for one in value):
            return copy.copy(value)
        return type(value)(self.of(one) for one in value)
