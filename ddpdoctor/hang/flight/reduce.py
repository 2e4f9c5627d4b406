"""Makes a :class:`Dump` of what the recorder wrote, and trusts none of it.

The format is that of ``torch/csrc/distributed/c10d/FlightRecorder``, versions 2.0 and later, pickled or JSON:
``pg_config`` (groups and their members), ``pg_status`` (how far each group came) and ``entries``, the ring of the
last calls. Facts that this rests on: a rank's entries stand in the order of its calls. Calls that were coalesced
share a sequence number, and only the last of them, which stands for all, is ever marked as completed. Gloo marks
completion by ``retired`` alone, and records no send and no receive.
"""

import hashlib
import operator
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

from ddpdoctor.blame.hang_snapshot import Dump, Entry, Group, Ring
from ddpdoctor.hang.flight import fields
from ddpdoctor.hang.flight.fields import Values
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.text import shorten

MOST_GROUPS = 1000
MOST_RANKS = 1 << 20
_MOST_WAITS = 256
"""Sends and receives without end that are kept in full; a batch of a pipeline has a few."""
_LIST = re.compile(r"\[[\d, ]*\]")

Traffic: TypeAlias = dict[tuple[str, str, int], int]
Placed: TypeAlias = tuple[int, Values]
"""An entry behind its position among all entries of its rank."""


def reduce(values: Values, rank: int, file: Path) -> Dump:
    """A dump's content in short. Raises Refused where an entry is not what torch writes."""
    try:
        return _reduce(values, rank, file)
    except fields.WRONG as wrong:
        text = shorten(ascii(str(wrong))[1:-1])
        raise Refused(f"an entry is not what torch writes: {type(wrong).__name__}: {text}") from None


def entry_at(values: Values, rank: int, group: str, number: int) -> Entry | None:
    """One collective in full; None where the ring dropped it. Raises Refused if an entry is not what torch writes."""
    try:
        entries = [
            (position, entry)
            for position, entry in enumerate(values["entries"])
            if not entry.get("is_p2p")
            and entry["process_group"][0] == group
            and fields.number(entry) == number
        ]
        return fields.entry(entries[-1][1], rank, entries[-1][0]) if entries else None
    except fields.WRONG:
        raise Refused("an entry is not what torch writes") from None


@dataclass(frozen=True)
class _GroupCalls:
    """The collectives of one group."""

    ring: Ring
    last: Placed
    oldest: Placed | None
    """The first that did not complete."""


def _reduce(values: Values, rank: int, file: Path) -> Dump:
    entries: Sequence[Values] = values["entries"]
    by_group_calls, texts = _calls_by_group(entries)
    used = {name: _description(calls.last[1]) for name, calls in by_group_calls.items()}
    waits, traffic = _sends_and_receives(entries, rank)
    waits += [_entry(calls.oldest, rank) for calls in by_group_calls.values() if calls.oldest]
    return Dump(
        rank,
        file,
        fields.text(values.get("host_name", "")),
        _groups(values, {**dict.fromkeys(name for name, _, _ in traffic), **used}),
        {name: calls.ring for name, calls in by_group_calls.items()},
        texts,
        tuple(sorted(waits, key=lambda wait: wait.position)),
        {name: _entry(calls.last, rank) for name, calls in by_group_calls.items()},
        traffic,
        wrapped=bool(entries) and entries[0].get("record_id", 0) > 0,
    )


def _entry(placed: Placed, rank: int) -> Entry:
    return fields.entry(placed[1], rank, placed[0])


def _calls_by_group(entries: Iterable[Values]) -> tuple[dict[str, _GroupCalls], dict[int, str]]:
    """The collectives of each group, and the signatures by their fingerprints."""
    by_group: dict[str, list[Placed]] = {}
    for placed in enumerate(entries):
        if not placed[1].get("is_p2p"):
            by_group.setdefault(placed[1]["process_group"][0], []).append(placed)
    _check_count(by_group)
    texts: dict[int, str] = {}
    known: dict[Any, int] = {}
    return {fields.text(name): _group_calls(of, known, texts) for name, of in by_group.items()}, texts


def _group_calls(placed: list[Placed], known: dict[Any, int], texts: dict[int, str]) -> _GroupCalls:
    numbers = _numbers(placed)
    signatures = _signatures(placed, known, texts)
    pending = [entry for entry in placed if entry[1]["state"] != "completed" and not entry[1].get("retired")]
    if any(map(operator.ge, numbers, numbers[1:])):  # coalesced, or hostile: the last of a number counts
        ends = dict(zip(numbers, placed, strict=True))
        pending = [entry for entry in pending if ends[fields.number(entry[1])] is entry]
        pairs = sorted(dict(zip(numbers, signatures, strict=True)).items())
        numbers, signatures = [number for number, _ in pairs], [signature for _, signature in pairs]
    if numbers[0] < 0:
        raise ValueError(f"a sequence number is {numbers[0]}")
    ring = Ring(array("q", numbers), array("Q", signatures))
    return _GroupCalls(ring, placed[-1], pending[0] if pending else None)


def _numbers(placed: list[Placed]) -> list[int]:
    try:
        return [entry["collective_seq_id"] for _, entry in placed]
    except KeyError:
        return [entry["seq_id"] for _, entry in placed]


def _signatures(placed: list[Placed], known: dict[Any, int], texts: dict[int, str]) -> list[int]:
    """The fingerprint of each; ``known`` has them by what is faster made than a signature."""
    fingerprints = []
    for _, entry in placed:
        sizes, dtypes = entry["input_sizes"], entry["input_dtypes"]
        if len(sizes) == 1 == len(dtypes):
            key: Any = (entry["profiling_name"], dtypes[0], *sizes[0])
        else:
            key = f"{entry['profiling_name']} {sizes} {dtypes}"
        if (signature := known.get(key)) is None:
            signature = known[key] = _remember(fields.signature(entry), texts)
        fingerprints.append(signature)
    return fingerprints


def _remember(text: str, texts: dict[int, str]) -> int:
    fingerprint = _fingerprint(text)
    texts.setdefault(fingerprint, shorten(text, fields.LONGEST))
    return fingerprint


@lru_cache(maxsize=10_000)
def _fingerprint(text: str) -> int:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def _sends_and_receives(entries: Sequence[Values], rank: int) -> tuple[list[Entry], Traffic]:
    """Those that did not complete, and the count of all; calls of one sequence number complete together."""
    placed = [(position, entry) for position, entry in enumerate(entries) if entry.get("is_p2p")]
    waits: list[Entry] = []
    traffic: Traffic = {}
    for _, together in groupby(placed, lambda it: (it[1]["process_group"][0], it[1]["p2p_seq_id"])):
        batch = list(together)
        last = batch[-1][1]
        pending = last["state"] != "completed" and not last.get("retired") and len(waits) < _MOST_WAITS
        for entry in batch:
            if (half := fields.half(entry[1])) is None:  # what ends a batch
                continue
            key = (fields.text(entry[1]["process_group"][0]), *half)
            traffic[key] = traffic.get(key, 0) + 1
            if pending:
                waits.append(_one_half(entry, rank, half, traffic[key], batched=len(batch) > 1))
    return waits, traffic


def _one_half(placed: Placed, rank: int, half: tuple[str, int], turn: int, *, batched: bool) -> Entry:
    operation, peer = half
    whole = replace(_entry(placed, rank), operation=operation, peer=peer, turn=turn, batched=batched)
    return replace(whole, number=placed[1]["p2p_seq_id"])


def _description(entry: Values) -> str:
    """What an entry says of its group, since gloo's are not described elsewhere."""
    _, *described = entry["process_group"]
    return fields.text(described[0]) if described else ""


def _groups(values: Values, used: Mapping[str, str | None]) -> dict[str, Group]:
    """The groups that are described, and those that the entries used, with what these say of them."""
    described, status = values.get("pg_config") or {}, values.get("pg_status") or {}
    names = {fields.text(name): used.get(name) for name in described if name != ""} | dict(used)
    _check_count(names)
    return {
        name: _group(name, described.get(name) or {"desc": said_of or ""}, status.get(name, {}))
        for name, said_of in names.items()
    }


def _check_count(groups: Mapping[str, Any]) -> None:
    if len(groups) > MOST_GROUPS:
        raise ValueError(f"it has more than {MOST_GROUPS} groups")


def _group(name: str, described: Values, status: Values) -> Group:
    return Group(
        name,
        fields.text(described.get("desc", "")),
        _ranks(described.get("ranks", "")),
        _known(status.get("last_enqueued_collective")),
    )


@lru_cache(maxsize=256)
def _ranks(text: str) -> tuple[int, ...]:
    """The members, which torch writes as the text of a list."""
    if text == "":
        return ()
    if (listed := _LIST.fullmatch(text)) is None:
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
