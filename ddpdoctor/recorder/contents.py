"""What a dataset holds, in order, as one fingerprint; from what it keeps in memory, never by loading a sample."""

from __future__ import annotations

import dis
import operator
import os
import zlib
from array import array
from collections.abc import Iterator
from typing import Any

from . import fingerprint
from .lengths import Lengths, is_plain

_NAMES = ("samples", "imgs", "files", "paths", "data", "targets", "labels", "tensors", "images")
_MOST_COLUMNS = 8
"""Of a TensorDataset; a longer list of tensors holds a sample in each."""
_MOST_ELEMENTS = 20_000
"""Of a list; of a longer one, as many spread over it."""
_MOST_OF_ELEMENT = 1 << 10
"""Bytes of an element that are read."""
_MOST_BYTES = 16 << 20
"""Of a tensor."""
_DEEPEST = 4


def ignores_index(dataset: Any) -> bool:
    """Whether ``__getitem__`` never reads the index that a sampler drew, or first replaces it by one of its own."""
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    if code is None or code.co_argcount < 2:
        return False
    index = code.co_varnames[1]
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith(("LOAD", "STORE")):
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            if index in names:
                return instruction.opname.startswith("STORE")
    return True


def innermost(dataset: Any, torch: Any, lengths: Lengths) -> tuple[Any, array[int] | None]:
    """The dataset inside all Subsets and what wraps sample by sample, and where in it each sample lies."""
    subset, base = torch.utils.data.Subset, torch.utils.data.Dataset
    places: array[int] | None = None
    for _ in range(_DEEPEST):
        fields = getattr(dataset, "__dict__", {})  # a list has none
        inner = fields.get("dataset", fields.get("subset"))
        if isinstance(dataset, subset) and is_plain(dataset.indices):
            indices = array("q", map(operator.index, dataset.indices))
            places = indices if places is None else array("q", [indices[place] for place in places])
        elif not isinstance(inner, base) or not _same_length(inner, dataset, lengths):
            break
        dataset = inner
    return dataset, places


def content(dataset: Any, torch: Any, lengths: Lengths) -> str | None:
    """The fingerprint; None where the dataset keeps nothing that tells."""
    parts: list[str] = []
    several = getattr(dataset, "__dict__", {}).get("datasets")
    for part in several if several and type(several) in (list, tuple) else (dataset,):
        parts += _of_one(part, torch, lengths)
    return f"{zlib.crc32(' '.join(parts).encode()):08x}" if parts else None


def _of_one(dataset: Any, torch: Any, lengths: Lengths) -> list[str]:
    parts = []
    for name, value in sorted(getattr(dataset, "__dict__", {}).items()):
        if is_plain(value) and (name in _NAMES or _same_length(value, dataset, lengths)):
            parts += [f"{name}={part}" for part in _parts(value, torch)]
    return parts


def _same_length(value: Any, dataset: Any, lengths: Lengths) -> bool:
    length = lengths.of(value)
    return length is not None and length == lengths.of(dataset)


def _parts(value: Any, torch: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor) or type(value).__module__ == "numpy":
        if print_ := fingerprint.of(value, torch, _MOST_BYTES):
            yield print_
    elif isinstance(value, list | tuple) and value:
        if isinstance(value[0], torch.Tensor) and len(value) <= _MOST_COLUMNS:
            for column in value:
                yield from _parts(column, torch)
        elif isinstance(value[0], str | int | float | list | tuple | dict | torch.Tensor):
            yield _of_list(value, torch)


def _of_list(values: Any, torch: Any) -> str:
    every = len(values) // _MOST_ELEMENTS + 1
    chosen = [_first_of_pair(value) for value in values[::every]]
    paths = [value for value in chosen if isinstance(value, str) and value.startswith(os.sep)]
    # Each rank may keep its copy of the data in a folder of its own.
    root = len(os.path.commonpath(paths)) if paths and len(paths) == len(chosen) else 0
    crc = zlib.crc32(str(len(values)).encode())
    for value in chosen:
        # Not repr: it would tell where an object lies in memory.
        part = (
            value[root:] if isinstance(value, str) else fingerprint.of(value, torch, _MOST_OF_ELEMENT) or ""
        )
        crc = zlib.crc32(part.encode(errors="surrogatepass"), crc)
    return f"{crc:08x}"


def _first_of_pair(value: Any) -> Any:
    """A file's path stands for a pair of path and label too: their order is the same."""
    pair = isinstance(value, list | tuple) and value and isinstance(value[0], str)
    return value[0] if pair else value
