"""One rank's dump of PyTorch's flight recorder, reduced to what comparing ranks needs.

The format is that of ``torch/csrc/distributed/c10d/FlightRecorder``, versions 2.0 and later, pickled or JSON:
``pg_config`` (groups and their members), ``pg_status`` (how far each group came) and ``entries``, the ring of the
last collectives. A thousand ranks have millions of entries, so an entry is kept as the number of its signature
(operation, shapes, dtypes), and what a report shows of it is read again from the few files that matter.
"""

from __future__ import annotations

import json
import operator
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ddpdoctor.hang.flight.unpickle import Refused, plain
from ddpdoctor.hang.stacks import Frame
from ddpdoctor.text import shorten

LARGEST = 1 << 30
"""Bytes; a dump of 100,000 entries with their frames has 100 MB."""
MOST_RANKS = 1 << 20
_RANK = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle|bin))?$")
_LIST = re.compile(r"\[[\d, ]*\]")
_SHAPES_VARY = ("gather", "scatter", "all_to_all", "alltoall", "send", "recv")
"""Operations in which ranks rightly give different shapes: only a root has the list, or parts are uneven."""


@dataclass
class Ring:
    """The collectives of one rank in one group, in the order of their sequence numbers."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    """Sequence numbers, ascending."""
    signatures: array[int] = field(default_factory=lambda: array("L"))
    """Of each, an index into the dump's ``texts``."""
    pending: array[int] = field(default_factory=lambda: array("q"))
    """The sequence numbers of those that did not complete."""

    def add(self, number: int, signature: int, pending: bool) -> None:
        """Append one collective, in any order."""
        self.numbers.append(number)
        self.signatures.append(signature)
        if pending:
            self.pending.append(number)

    def sort(self) -> None:
        """Bring them into the order of their numbers, which a ring that has wrapped may not have."""
        if any(map(operator.gt, self.numbers, self.numbers[1:])):
            pairs = sorted(zip(self.numbers, self.signatures, strict=True))
            self.numbers, self.signatures = array("q"), array("L")
            for number, signature in pairs:
                self.add(number, signature, pending=False)
        self.pending = array("q", sorted(self.pending))


@dataclass(frozen=True)
class Group:
    """A process group as a rank knows it."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()
    """Its members; empty where the dump does not say, as gloo's."""
    enqueued: int | None = None
    """The last sequence number that was given out; None where the dump does not say."""
    completed: int | None = None


@dataclass(frozen=True)
class Dump:
    """What one rank left."""

    rank: int
    file: Path
    host: str = ""
    groups: Mapping[str, Group] = field(default_factory=dict)
    rings: Mapping[str, Ring] = field(default_factory=dict)
    """By the name of the group."""
    texts: tuple[str, ...] = ()
    """The signatures."""


@dataclass(frozen=True)
class Entry:
    """One collective, in full."""

    rank: int
    group: str
    number: int
    operation: str
    shapes: str
    dtypes: str
    state: str
    frames: tuple[Frame, ...] = ()
    """Innermost first, as torch writes them."""


def rank_of(file: Path) -> int | None:
    """The rank that a dump's name ends with: ``comm_lib_trace_rank_3``, ``nccl_trace_host7_rank_12``, ``fr3.json``."""
    found = _RANK.search(file.name)
    return int(found[1]) if found and int(found[1]) < MOST_RANKS else None


def read(file: Path, rank: int) -> Dump:
    """Read a dump and reduce it.

    Raises:
        Refused: it is too large, or not what torch writes.
    """
    return reduce(_content(file), rank, file)


def _content(file: Path) -> dict[str, Any]:
    if file.stat().st_size > LARGEST:
        raise Refused(f"it has {file.stat().st_size >> 20} MiB, and {LARGEST >> 20} are the most")
    data = file.read_bytes()
    said = _json(data) if data.lstrip()[:1] == b"{" else plain(data)
    if not isinstance(said, dict) or not isinstance(said.get("entries"), list):
        raise Refused("it has no list of entries")
    return said


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as broken:
        raise Refused(f"it is no complete JSON: {broken}") from None


def reduce(said: Mapping[str, Any], rank: int, file: Path) -> Dump:
    """A dump's content in short.

    Raises:
        Refused: an entry is not what torch writes.
    """
    texts: dict[str, int] = {}
    rings: dict[str, Ring] = {}
    try:
        for entry in _collectives(said["entries"]):
            name = entry["process_group"][0]
            ring = rings.get(name)
            if ring is None:
                ring = rings[name] = Ring()
            ring.add(_number(entry), texts.setdefault(_signature(entry), len(texts)), _is_pending(entry))
        for ring in rings.values():
            ring.sort()
        groups = _groups(said, rings)
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as wrong:
        raise Refused(
            f"an entry is not what torch writes: {type(wrong).__name__}: {shorten(str(wrong))}"
        ) from None
    return Dump(rank, file, str(said.get("host_name", "")), groups, rings, tuple(texts))


def _is_pending(entry: Mapping[str, Any]) -> bool:
    return entry["state"] != "completed" and not entry.get("retired")


def _collectives(entries: Iterable[Any]) -> Iterable[dict[str, Any]]:
    return [entry for entry in entries if not entry.get("is_p2p")]


def _number(entry: Mapping[str, Any]) -> int:
    number = entry["collective_seq_id"] if "collective_seq_id" in entry else entry["seq_id"]
    if number.__class__ is not int or number < 0:
        raise ValueError(f"its sequence number is {number!r}")
    return number


@lru_cache(maxsize=1000)
def operation_of(name: str) -> str:
    """``all_reduce`` for ``nccl:all_reduce``."""
    return name.rpartition(":")[2]


def _signature(entry: Mapping[str, Any]) -> str:
    operation = operation_of(entry["profiling_name"])
    if _shapes_vary(operation):
        return operation
    return f"{operation} {entry['input_sizes']} {entry['input_dtypes']}"


@lru_cache(maxsize=1000)
def _shapes_vary(operation: str) -> bool:
    return operation.lstrip("_").startswith(_SHAPES_VARY)


def _groups(said: Mapping[str, Any], rings: Mapping[str, Ring]) -> dict[str, Group]:
    config, status = said.get("pg_config") or {}, said.get("pg_status") or {}
    described = {str(name): one for name, one in config.items() if name != ""}
    return {
        name: _group(name, described.get(name, {}), status.get(name, {})) for name in {**described, **rings}
    }


def _group(name: str, described: Mapping[str, Any], status: Mapping[str, Any]) -> Group:
    return Group(
        name,
        str(described.get("desc", "")),
        _ranks(described.get("ranks", "")),
        _known(status.get("last_enqueued_collective")),
        _known(status.get("last_completed_collective")),
    )


def _ranks(text: Any) -> tuple[int, ...]:
    """The members, which torch writes as the text of a list."""
    listed = _LIST.fullmatch(text) if isinstance(text, str) else None
    if text and not listed:
        raise ValueError(f"the ranks of a group are {shorten(repr(text), 40)}")
    return tuple(sorted(int(rank) for rank in re.findall(r"\d+", listed[0]))) if listed else ()


def _known(number: Any) -> int | None:
    return number if isinstance(number, int) and number >= 0 else None


def entry(dump: Dump, group: str, number: int) -> Entry | None:
    """One collective in full, read again from its file; None where the ring has dropped it."""
    for found in _collectives(_content(dump.file)["entries"]):
        if str(found["process_group"][0]) == group and _number(found) == number:
            return Entry(
                dump.rank,
                group,
                number,
                operation_of(found["profiling_name"]),
                str(found.get("input_sizes", "")),
                str(found.get("input_dtypes", "")),
                str(found["state"]),
                tuple(_frame(frame) for frame in found.get("frames") or ()),
            )
    return None


def _frame(said: Mapping[str, Any]) -> Frame:
    return Frame(str(said["name"]), str(said["filename"]), int(said["line"]))
