"""The words for ranks, calls and lines in a verdict on dumps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ddpdoctor.blame.dump import Dump, Entry
from ddpdoctor.blame.frames import is_of_script, where_of
from ddpdoctor.hang.flight.teams import Team
from ddpdoctor.model import Where
from ddpdoctor.text import listing, ranks_phrase, shorten

_SIGNATURE = re.compile(r"(\S+) \[(.*)\] \[(.*)\]")
_LONGEST_CALL = 80
_LONGEST_WHO = 60


def title(entry: Entry, flight: Mapping[int, Dump]) -> str:
    """In what a rank stands: ``all_reduce 10 of the default group``, ``recv from rank 1``."""
    if entry.peer is not None:
        return f"{entry.operation} {'from' if entry.operation == 'recv' else 'to'} rank {entry.peer}"
    group = flight[entry.rank].groups[entry.group]
    team = Team(group.name, group.description, group.ranks)
    return f"{entry.operation} {entry.number} of {team.title}"


def call(signature: str) -> str:
    """``all_reduce of Float [1024]`` of a signature."""
    found = _SIGNATURE.fullmatch(signature)
    if found is None or not found[2]:
        return shorten(found[1] if found else signature, _LONGEST_CALL)
    types = listing(sorted(set(found[3].replace("'", "").split(", "))))
    return shorten(f"{found[1]} of {types} {found[2]}", _LONGEST_CALL)


def last(dump: Dump) -> Entry | None:
    """The last collective of a rank, of all groups."""
    return max(dump.last.values(), key=lambda one: one.position, default=None)


def line(entry: Entry | None) -> Where | None:
    """The innermost line of the script's own."""
    frames = entry.frames if entry else ()
    frame = next((one for one in frames if is_of_script(one)), None)
    return where_of(frame) if frame else None


def who(ranks: Iterable[int]) -> str:
    """``rank 2``, ``ranks 0-1, 3``; of very many how many, and the first of them."""
    known = set(ranks)
    phrase = ranks_phrase(known)
    if len(phrase) <= _LONGEST_WHO:
        return phrase
    return f"{len(known)} ranks ({phrase[len('ranks ') : _LONGEST_WHO].rpartition(', ')[0]}, ...)"


def at(where: Where | None) -> str:
    """For the end of a sentence; empty where the line is not known."""
    return f" at {where.file}:{where.line} in {where.function}" if where else ""
