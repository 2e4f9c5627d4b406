"""Batches as containers of tensors: kept in a file, and those of several ranks put together."""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Iterator
from typing import Any


class NotComparable(Exception):
    """Why the two gradients would rightly differ, or cannot be had."""


def write(path: str, content: Any) -> None:
    """Write containers of tensors.

    Raises:
        NotComparable: something in it cannot be written.
    """
    try:
        with open(path, "wb") as file:
            _Pickler(file, protocol=4).dump(content)
    except (pickle.PicklingError, AttributeError, TypeError) as broken:
        raise NotComparable(f"a batch of it cannot be kept: {broken}") from None


def read(path: str) -> Any:
    """What :func:`write` wrote."""
    with open(path, "rb") as file:
        # Written by this very command a moment ago; a batch may hold any class of the script's.
        return pickle.load(file)


class _Pickler(pickle.Pickler):
    """Writes tensors as bytes: torch's own way goes through torch.save, which is watched."""

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, sys.modules["torch"].Tensor):
            refuse_class(type(thing))
            return NotImplemented
        plain = thing.detach().to("cpu").contiguous()
        data = ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size())
        return _tensor, (data, str(plain.dtype).removeprefix("torch."), tuple(plain.shape))


def refuse_class(kind: type) -> None:
    """Refuse what cannot be kept or compared without running code of the script's classes.

    Raises:
        NotComparable: the class is neither Python's nor torch's nor numpy's, and no named tuple.
    """
    known = kind.__module__.partition(".")[0] in (*sys.stdlib_module_names, "torch", "numpy")
    if not (known or (issubclass(kind, tuple) and hasattr(kind, "_fields"))):
        raise NotComparable(f"a batch holds {kind.__name__}, which ddpdoctor cannot put together")


def _tensor(data: bytes, dtype: str, shape: tuple[int, ...]) -> Any:
    torch = sys.modules["torch"]
    if not data:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype)).reshape(shape)


def tensors_in(batch: Any) -> Iterator[Any]:
    """The tensors in containers, however deep."""
    if isinstance(batch, sys.modules["torch"].Tensor):
        yield batch
    elif isinstance(batch, dict):
        for value in batch.values():
            yield from tensors_in(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from tensors_in(value)


def join(torch: Any, parts: tuple[Any, ...]) -> Any:
    """The batches of all ranks as one: tensors along their first dimension, containers value by value.

    Raises:
        NotComparable: they do not fit together.
    """
    first = parts[0]
    for part in parts:
        refuse_class(type(part))
    if isinstance(first, torch.Tensor):
        if len({tuple(part.shape[1:]) for part in parts}) > 1:
            raise NotComparable("the ranks' batches have different shapes and cannot be put together")
        return first if first.dim() == 0 else torch.cat(parts)
    if isinstance(first, dict):
        return type(first)({key: join(torch, tuple(part[key] for part in parts)) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(join(torch, values) for values in zip(*parts, strict=True)))
    if isinstance(first, list | tuple):
        if all(isinstance(value, str) for part in parts for value in part):
            return type(first)(value for part in parts for value in part)  # names or texts, one a sample
        return type(first)(join(torch, values) for values in zip(*parts, strict=True))
    if all(part == first for part in parts):
        return first
    raise NotComparable(f"a batch holds {type(first).__name__}, which ddpdoctor cannot put together")
