"""The fields of one entry of a dump, each of the type that torch writes, or an exception of ``WRONG``.

Containers of a hostile file may hold themselves a million times over, so a value is taken only where its type
and its length are those of the format, and never turned into a text before.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.hang_snapshot import Entry
from ddpdoctor.redact import escape
from ddpdoctor.text import shorten

Values: TypeAlias = Mapping[str, Any]
WRONG = (LookupError, TypeError, ValueError, OverflowError, AttributeError)
"""What looking for a dump in something else raises."""
LONGEST = 1000
"""Characters of a text that is kept."""
_MOST_TENSORS = 10_000
_MOST_DIMENSIONS = 64
_MOST_FRAMES = 64
_P2P = re.compile(r"(send) \d+->(\d{1,9})|(recv) \d+<-(\d{1,9})")
_SHAPES_VARY = ("gather", "scatter", "all_to_all", "alltoall", "broadcast_oop", "reduce_oop")
"""Operations in which ranks rightly give different shapes: only a root has the list, or parts are uneven."""


def signature(values: Values) -> str:
    """What has to be equal on all ranks: operation, shapes and types, where ranks may not rightly differ in them."""
    operation = operation_of(values["profiling_name"])
    if _shapes_vary(operation):
        return operation
    return f"{operation} {_sizes(values['input_sizes'])} {_dtypes(values['input_dtypes'])}"


@lru_cache(maxsize=1000)
def operation_of(name: str) -> str:
    """``all_reduce`` for ``nccl:all_reduce``."""
    return text(name).rpartition(":")[2]


@lru_cache(maxsize=1000)
def _shapes_vary(operation: str) -> bool:
    return operation.lstrip("_").startswith(_SHAPES_VARY) or operation.endswith("_v")


def _sizes(sizes: Any) -> str:
    """``[[1024], [4, 4]]``."""
    if len(sizes) > _MOST_TENSORS:
        raise ValueError(f"it has {len(sizes)} tensors")
    for size in sizes:
        if len(size) > _MOST_DIMENSIONS or any(length.__class__ is not int for length in size):
            raise TypeError("a shape is none")
    return str(sizes)


def _dtypes(dtypes: Any) -> str:
    if len(dtypes) > _MOST_TENSORS or any(dtype.__class__ is not str or len(dtype) > 64 for dtype in dtypes):
        raise TypeError("a type of elements is none")
    return str(list(dtypes))  # of a text, too, its characters as repr writes them


def number(values: Values) -> int:
    """The sequence number of a collective."""
    sequence: int = values["collective_seq_id"] if "collective_seq_id" in values else values["seq_id"]
    return sequence


def half(values: Values) -> tuple[str, int] | None:
    """``("recv", 1)`` of ``nccl:recv 0<-1``; None of what is neither a send nor a receive."""
    if (match := _P2P.fullmatch(operation_of(values["profiling_name"]))) is None:
        return None
    return (match[1], int(match[2])) if match[1] else (match[3], int(match[4]))


def entry(values: Values, rank: int, position: int) -> Entry:
    """An entry in full."""
    return Entry(
        rank,
        text(values["process_group"][0]),
        number(values),
        operation_of(values["profiling_name"]),
        shorten(_sizes(values.get("input_sizes", ())), LONGEST),
        shorten(_dtypes(values.get("input_dtypes", ())), LONGEST),
        text(values["state"]),
        tuple(_frame(frame) for frame in (values.get("frames") or ())[:_MOST_FRAMES]),
        position,
    )


def _frame(values: Values) -> Frame:
    line = values["line"]
    if line.__class__ is not int or not -1 <= line < 1 << 31:
        raise ValueError("a frame's line is none")
    return Frame(text(values["name"]), text(values["filename"]), line)


def text(value: Any) -> str:
    """A text, cut where it is too long to be shown, and on one line."""
    if value.__class__ is not str:
        raise TypeError(f"a text is a {value.__class__.__name__}")
    return escape(shorten(value, LONGEST))
