"""What a dataset holds, in order, as one fingerprint; from what it keeps in memory, never by loading a sample.

And the parts into which datasets are divided, from where they are made to the loaders that draw from them.
"""

from __future__ import annotations

import dis
import operator
import os
import weakref
import zlib
from array import array
from collections.abc import Iterator
from types import CodeType
from typing import Any

from .branches import variables_in
from .digest import fingerprint
from .events.data import Subset
from .lengths import Lengths, is_plain
from .patch import guarded
from .session import Session
from .where import Where
from .writer import Numbers

_ADDS = ("append", "extend", "insert", "add", "pop", "clear", "update", "setdefault")
"""Methods by which a dataset notes something while it is read."""
_BY_NAME = {"getattr", "vars", "__dict__", "__getattribute__"}
"""What may read any attribute."""
_ABSTRACT = "Dataset.__getitem__"
"""torch's, which raises."""
_OF_OWNER = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "STORE_ATTR")
_MOST_COLUMNS = 8
"""Of a TensorDataset; a longer list of tensors holds a sample in each."""
_MOST_ELEMENTS = 20_000
"""Of a list; of a longer one, as many spread over it."""
_MOST_OF_ELEMENT = 1 << 10
"""Bytes of an element that are read."""
_MOST_BYTES = 16 << 20
"""Of a tensor."""
_DEEPEST = 4


_MOST_PARTS = 100
_MOST_SAMPLES = 4_000_000


def ignores_index(dataset: Any) -> bool:
    """Whether ``__getitem__`` never reads the index that a sampler drew, or first replaces it by one of its own."""
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    if code is None or code.co_argcount < 2:
        return False
    index = code.co_varnames[1]
    for instruction in dis.get_instructions(code):
        for does, variable in variables_in(instruction):
            if variable == index:
                return does == "STORE"
    return True


def innermost(dataset: Any, torch: Any, lengths: Lengths) -> tuple[Any, array[int] | None]:
    """The dataset inside all Subsets and what wraps sample by sample, and where in it each sample lies."""
    subset, base = torch.utils.data.Subset, torch.utils.data.Dataset
    places: array[int] | None = None
    for _ in range(_DEEPEST):
        if isinstance(dataset, subset) and is_plain(dataset.indices):
            indices = array("q", map(operator.index, dataset.indices))
            places = indices if places is None else array("q", [indices[place] for place in places])
            dataset = dataset.dataset
            continue
        held = _held(dataset)
        wrapped = [it for it in held.values() if isinstance(it, base) and _same_length(it, dataset, lengths)]
        if len(wrapped) != 1:
            break
        dataset = wrapped[0]
    return dataset, places


def _held(dataset: Any) -> dict[str, Any]:
    """The attributes that its samples may be made of: those that ``__getitem__`` reads, where that can be told."""
    fields: dict[str, Any] = getattr(dataset, "__dict__", {})  # a list has none
    names = _read_by(type(dataset), "__getitem__")
    return fields if names is None else {name: value for name, value in fields.items() if name in names}


def _read_by(kind: type, method: str) -> set[str] | None:
    """The attributes of its object that a method reads, by itself or by other methods; None where it may read any."""
    waiting, visited, names = [method], set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        visited.add(name)
        functions = [vars(base)[name] for base in kind.__mro__ if name in vars(base)]
        functions = [it for it in functions if getattr(it, "__qualname__", "") != _ABSTRACT]
        if name == method and (not functions or None in map(_code_of, functions)):
            return None
        for code in map(_code_of, functions):
            for part in _with_inner(code) if code is not None else ():
                read = _read_in(part, code.co_varnames[0] if code is not None and code.co_argcount else "")
                if read is None:
                    return None
                names |= read
                waiting += [it for it in read if it not in visited and it not in waiting]
    return names


def _code_of(function: Any) -> CodeType | None:
    """The code of a method or a property."""
    function = getattr(function, "fget", getattr(function, "__func__", function))
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return code if isinstance(code, CodeType) else None


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def _read_in(code: CodeType, owner: str) -> set[str] | None:
    """The attributes of its owner that some code reads; None where the owner is given to something else."""
    if not _BY_NAME.isdisjoint(code.co_names):
        return None
    names = set[str]()
    steps = [it for it in dis.get_instructions(code) if it.opname != "CACHE"]
    for step, after, later in zip(steps, [*steps[1:], None], [*steps[2:], None, None], strict=True):
        loaded = [variable for does, variable in variables_in(step) if does == "LOAD"]
        if owner not in loaded:
            continue
        if owner in code.co_cellvars and after is not None and after.opname == "BUILD_TUPLE":
            continue  # for a function inside, whose own code is read
        is_attribute = after is not None and after.opname in _OF_OWNER
        if loaded[-1] != owner or not is_attribute:
            return None
        adds = later is not None and later.opname in _OF_OWNER and later.argval in _ADDS
        if after is not None and after.opname != "STORE_ATTR" and not adds:
            names.add(after.argval)
    return names


def content(dataset: Any, torch: Any, lengths: Lengths) -> str | None:
    """The fingerprint; None where the dataset keeps nothing that tells."""
    parts: list[str] = []
    base = torch.utils.data.Dataset
    lists = (it for it in _held(dataset).values() if type(it) in (list, tuple) and it)
    several = next((it for it in lists if isinstance(it[0], base)), None)
    for part in several or (dataset,):
        parts += _of_one(part, torch, lengths)
    return f"{zlib.crc32(' '.join(parts).encode()):08x}" if parts else None


def _of_one(dataset: Any, torch: Any, lengths: Lengths) -> list[str]:
    parts = []
    held = _held(dataset)
    of_samples = held is not getattr(dataset, "__dict__", {})
    for name, value in sorted(held.items()):
        if is_plain(value) and (of_samples or _same_length(value, dataset, lengths)):
            parts += [f"{name}={part}" for part in _parts(value, torch)]
    return parts


def _same_length(value: Any, dataset: Any, lengths: Lengths) -> bool:
    length = lengths.of(value)
    return length is not None and length == lengths.of(dataset)


def _parts(value: Any, torch: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor) or type(value).__module__ == "numpy":
        if print_ := fingerprint(value, torch, _MOST_BYTES):
            yield print_
    elif isinstance(value, list | tuple) and value:
        if isinstance(value[0], torch.Tensor) and len(value) <= _MOST_COLUMNS:
            for column in value:
                yield from _parts(column, torch)
        elif isinstance(value[0], str | int | float | list | tuple | dict | torch.Tensor):
            yield _of_list(value, torch)
    elif isinstance(value, dict) and _numbers_classes(value):
        yield f"{zlib.crc32(repr(sorted(value, key=value.__getitem__)).encode()):08x}"


def _numbers_classes(value: dict[Any, Any]) -> bool:
    """Whether it gives the numbers from 0 on to names, as of classes; a cache or settings of each rank do not."""
    few = 1 < len(value) <= _MOST_ELEMENTS
    plain = few and all(type(name) is str and type(number) is int for name, number in value.items())
    return plain and sorted(value.values()) == list(range(len(value)))


def _of_list(values: Any, torch: Any) -> str:
    taken = values[:: len(values) // _MOST_ELEMENTS + 1]
    chosen = [_first_of_pair(value) for value in taken]
    labels = [value[1] for value in taken if _is_labelled(value)]
    paths = [value for value in chosen if isinstance(value, str) and value.startswith(os.sep)]
    # Each rank may keep its copy of the data in a folder of its own.
    root = len(os.path.commonpath(paths)) if paths and len(paths) == len(chosen) else 0
    crc = zlib.crc32(f"{len(values)}{labels or ''}".encode())
    for value in chosen:
        # Not repr: it would tell where an object lies in memory.
        part = value[root:] if isinstance(value, str) else fingerprint(value, torch, _MOST_OF_ELEMENT) or ""
        crc = zlib.crc32(part.encode(errors="surrogatepass"), crc)
    return f"{crc:08x}"


def _is_labelled(value: Any) -> bool:
    """Whether it is a pair of a file's path, or another text, and a number."""
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and type(value[0]) is str and type(value[1]) is int


def _first_of_pair(value: Any) -> Any:
    """A file's path stands for what is beside it too: their order is the same."""
    pair = isinstance(value, list | tuple) and value and isinstance(value[0], str)
    return value[0] if pair else value


class Splits:
    """All Subsets of a process."""

    def __init__(self, session: Session, numbers: Numbers, lengths: Lengths) -> None:
        self.session = session
        self.numbers = numbers
        self.lengths = lengths
        self.group: int | None = None
        """The call of random_split that is under way."""
        self._datasets: dict[int, tuple[Any, int]] = {}
        self._parts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._groups = self._made = 0

    def key(self, dataset: Any) -> int:
        """A number for a dataset, by identity; ids alone are given again when one is gone."""
        reference, serial = self._datasets.get(id(dataset), (None, 0))
        if reference is None or reference() is not dataset:
            serial = len(self._datasets)
            try:
                self._datasets[id(dataset)] = weakref.ref(dataset), serial
            except TypeError:  # a list, for instance
                self._datasets[id(dataset)] = (lambda: dataset), serial
        return serial

    def open_group(self) -> bool:
        self.group, self._groups = self._groups, self._groups + 1
        return True

    def close_group(self, *_: object) -> None:
        self.group = None

    @guarded
    def made(self, subset: Any, at: Where | None) -> None:
        indices = subset.indices
        if self._made >= _MOST_PARTS or not is_plain(indices) or len(indices) > _MOST_SAMPLES:
            return
        part, self._made = self._made, self._made + 1
        self._parts[subset] = part
        inner, places = innermost(subset, self.session.torch, self.lengths)
        kept = self.numbers.store(array("q", map(operator.index, indices)) if places is None else places)
        whole, samples = self.key(subset.dataset), self.lengths.of(inner)
        self.session.event(Subset(part, whole, samples, kept, self.group, at))

    def of(self, dataset: Any) -> tuple[int, ...]:
        """The parts that a dataset draws from."""
        return tuple(self._parts[layer] for layer in _layers(dataset) if layer in self._parts)


def _layers(dataset: Any) -> Iterator[Any]:
    """A dataset and all that it holds inside."""
    waiting, count = [dataset], 0
    while waiting and count < 50:
        layer, count = waiting.pop(), count + 1
        if hasattr(layer, "__dict__"):
            yield layer
            held = vars(layer)
            waiting += [held[name] for name in ("dataset", "subset") if name in held]
            several = held.get("datasets")
            waiting += several if type(several) in (list, tuple) else ()
