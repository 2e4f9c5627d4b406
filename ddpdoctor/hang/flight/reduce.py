"""Makes a :class:`Dump` of what the recorder wrote, and trusts none of it.

The format is that of ``torch/csrc/distributed/c10d/FlightRecorder``, versions 2.0 and later, pickled or JSON:
``pg_config`` (groups and their members), ``pg_status`` (how far each group came) and ``entries``, the ring of the
last calls. Facts that this rests on: a rank's entries stand in the order of its calls. Calls that were coalesced
share a sequence number, and only the last of them, which stands for all, is ever marked as completed. Gloo marks
completion by ``retired`` alone, and records no send and no receive.
"""

from __future__ import annotations

import hashlib
import operator
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from ddpdoctor.hang.flight import fields
from ddpdoctor.hang.flight.dump import Dump, Entry, Group, Ring
from ddpdoctor.hang.flight.fields import Said
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.text import shorten

MOST_GROUPS = 1000
MOST_RANKS = 1 << 20
_MOST_WAITS = 256
"""Sends and receives without end that are kept in full; a batch of a pipeline has a few."""
_LIST = re.compile(r"\[[\d, ]*\]")

Traffic: TypeAlias = dict[tuple[str, str, int], int]
Placed: TypeAlias = tuple[int, Said]
"""An entry behind its position among all entries of its rank."""


def reduce(said: Said, rank: int, file: Path) -> Dump:
    """A dump's content in short.

    Raises:
        Refused: an entry is not what torch writes.
    """
    try:
        return _reduce(said, rank, file)
    except fields.WRONG as wrong:
        text = shorten(ascii(str(wrong))[1:-1])
        raise Refused(f"an entry is not what torch writes: {type(wrong).__name__}: {text}") from None


def entry_at(said: Said, rank: int, group: str, number: int) -> Entry | None:
    """One collective in full; None where the ring has dropped it.

    Raises:
        Refused: an entry is not what torch writes.
    """
    try:
        found = [
            (position, one)
            for position, one in enumerate(said["entries"])
            if not one.get("is_p2p") and one["process_group"][0] == group and fields.number(one) == number
        ]
        return fields.entry(found[-1][1], rank, found[-1][0]) if found else None
    except fields.WRONG:
        raise Refused("an entry is not what torch writes") from None


@dataclass
class _Course:
    """The collectives of one group while they are read."""

    ring: Ring = field(default_factory=Ring)
    last: Placed | None = None
    oldest: Placed | None = None
    """The first that did not complete."""

    def append(self, position: int, one: Said, signature: int) -> None:
        """Add a collective; one of an equal number was coalesced with it, and this one ends both."""
        number, ring = fields.number(one), self.ring
        if ring.numbers and ring.numbers[-1] == number:
            ring.signatures[-1] = signature
            if self.oldest and fields.number(self.oldest[1]) == number:
                self.oldest = None
        else:
            ring.numbers.append(number)
            ring.signatures.append(signature)
        self.last = (position, one)
        if self.oldest is None and fields.is_pending(one):
            self.oldest = (position, one)


def _reduce(said: Said, rank: int, file: Path) -> Dump:
    entries: Sequence[Said] = said["entries"]
    courses, texts = _courses(entries)
    waits, traffic = _sends_and_receives(entries, rank)
    waits += [_entry(one.oldest, rank) for one in courses.values() if one.oldest]
    return Dump(
        rank,
        file,
        fields.text(said.get("host_name", "")),
        _groups(said, (*courses, *(name for name, _, _ in traffic))),
        {name: _sorted(one.ring) for name, one in courses.items()},
        texts,
        tuple(sorted(waits, key=lambda one: one.position)),
        {name: _entry(one.last, rank) for name, one in courses.items() if one.last},
        traffic,
        wrapped=bool(entries) and entries[0].get("record_id", 0) > 0,
    )


def _entry(placed: Placed, rank: int) -> Entry:
    return fields.entry(placed[1], rank, placed[0])


def _courses(entries: Iterable[Said]) -> tuple[dict[str, _Course], dict[int, str]]:
    """The collectives of each group, and the signatures by their fingerprints.

    What entries share is looked at once, or a small file could ask for work without end.
    """
    known: dict[tuple[str, int, int], int] = {}
    texts: dict[int, str] = {}
    courses: dict[str, _Course] = {}
    for position, one in enumerate(entries):
        if one.get("is_p2p"):
            continue
        key = (one["profiling_name"], id(one["input_sizes"]), id(one["input_dtypes"]))
        signature = known.get(key)
        if signature is None:
            signature = known[key] = _remember(fields.signature(one), texts)
        name = one["process_group"][0]
        course = courses.get(name)
        if course is None:
            course = courses[fields.text(name)] = _Course()
            _check_count(courses)
        course.append(position, one, signature)
    return courses, texts


def _remember(text: str, texts: dict[int, str]) -> int:
    fingerprint = _fingerprint(text)
    texts.setdefault(fingerprint, shorten(text, fields.LONGEST))
    return fingerprint


@lru_cache(maxsize=10_000)
def _fingerprint(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _sorted(ring: Ring) -> Ring:
    """In the order of its numbers, which hostile dumps may not have."""
    numbers = ring.numbers
    if any(map(operator.ge, numbers, numbers[1:])):
        pairs = sorted(dict(zip(numbers, ring.signatures, strict=True)).items())
        ring = Ring(array("q", (n for n, _ in pairs)), array("Q", (s for _, s in pairs)))
    if ring.numbers and ring.numbers[0] < 0:
        raise ValueError(f"a sequence number is {ring.numbers[0]}")
    return ring


def _sends_and_receives(entries: Sequence[Said], rank: int) -> tuple[list[Entry], Traffic]:
    """Those that did not complete, and the count of all; calls of one sequence number complete together."""
    placed = [(position, one) for position, one in enumerate(entries) if one.get("is_p2p")]
    waits: list[Entry] = []
    traffic: Traffic = {}
    for _, together in groupby(placed, _number_of_batch):
        batch = list(together)
        pending = fields.is_pending(batch[-1][1]) and len(waits) < _MOST_WAITS
        for one in batch:
            if (half := fields.half(one[1])) is None:  # what ends a batch
                continue
            key = (fields.text(one[1]["process_group"][0]), *half)
            traffic[key] = traffic.get(key, 0) + 1
            if pending:
                waits.append(_one_half(one, rank, half, traffic[key], batched=len(batch) > 1))
    return waits, traffic


def _one_half(placed: Placed, rank: int, half: tuple[str, int], turn: int, *, batched: bool) -> Entry:
    operation, peer = half
    whole = replace(_entry(placed, rank), operation=operation, peer=peer, turn=turn, batched=batched)
    return replace(whole, number=placed[1]["p2p_seq_id"])


def _number_of_batch(placed: Placed) -> tuple[str, int]:
    return placed[1]["process_group"][0], placed[1]["p2p_seq_id"]


def _groups(said: Said, used: Iterable[str]) -> dict[str, Group]:
    described, status = said.get("pg_config") or {}, said.get("pg_status") or {}
    names = dict.fromkeys((*(fields.text(name) for name in described if name != ""), *used))
    _check_count(names)
    return {name: _group(name, described.get(name, {}), status.get(name, {})) for name in names}


def _check_count(groups: dict[str, Any]) -> None:
    if len(groups) > MOST_GROUPS:
        raise ValueError(f"it has more than {MOST_GROUPS} groups")


def _group(name: str, described: Said, status: Said) -> Group:
    return Group(
        name,
        fields.text(described.get("desc", "")),
        _ranks(described.get("ranks", "")),
        _known(status.get("last_enqueued_collective")),
        _known(status.get("last_completed_collective")),
    )


@lru_cache(maxsize=256)
def _ranks(text: str) -> tuple[int, ...]:
    """The members, which torch writes as the text of a list."""
    if text == "":
        return ()
    listed = _LIST.fullmatch(text)
    if listed is None:
        raise ValueError(f"the ranks of a group are {shorten(text, 40)}")
    ranks = tuple(sorted({int(rank) for rank in re.findall(r"\d+", listed[0])}))
    if ranks and ranks[-1] >= MOST_RANKS:
        raise ValueError(f"a group has rank {ranks[-1]}")
    return ranks


def _known(number: Any) -> int | None:
    """A count, which JSON has as a text; torch has -1 for none."""
    if number.__class__ is str and re.fullmatch(r"[0-9]{1,18}", number):
        return int(number)
    return number if number.__class__ is int and 0 <= number < 1 << 63 else None
