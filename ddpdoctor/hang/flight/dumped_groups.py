"""The process groups of a job, put together from what each rank's dump says of them, and the first position of a group
at which ranks called different things."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ddpdoctor.blame.hang_snapshot import Dump
from ddpdoctor.text import listing, shorten

DEFAULT = "0"
"""The name of the default group, unless its description says that it is another."""


@dataclass(frozen=True)
class ProcessGroup:
    """One process group of the job. Several may have one name, as those that are split off at once."""

    name: str
    description: str
    members: tuple[int, ...]
    """As ranks of the job, in the order of their ranks in the group."""

    @property
    def title(self) -> str:
        """For a sentence: ``the default group``, ``group 3``, ``group 3 (pipeline)``."""
        if _is_default(self.name, self.description):
            return "the default group"
        described = self.description not in ("", "undefined")
        return f"group {self.name}{f' ({self.description})' if described else ''}"


@dataclass(frozen=True)
class Disagreement:
    """Ranks that know different members of one group."""

    name: str
    known: Mapping[tuple[int, ...], tuple[int, ...]]
    """The ranks that say so, by the members that they know."""


@dataclass(frozen=True)
class ProcessGroups:
    """All groups of a job."""

    of_rank: Mapping[tuple[int, str], ProcessGroup]
    """By rank and name."""
    disagreement: Disagreement | None = None


def process_groups_of(dumps: Mapping[int, Dump], world_size: int | None) -> ProcessGroups:
    """The groups, as told; else whoever used one, and for the default group everybody, where the size is known."""
    members_by_name: defaultdict[str, defaultdict[tuple[int, ...], list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    descriptions: dict[str, str] = {}
    for rank, dump in dumps.items():
        for name, group in dump.groups.items():
            members_by_name[name][group.ranks].append(rank)
            descriptions[name] = descriptions.get(name) or group.description
    everybody = tuple(range(world_size or max(dumps, default=-1) + 1))
    of_rank: dict[tuple[int, str], ProcessGroup] = {}
    disagreement = None
    for name, variants in members_by_name.items():
        silent = variants.pop((), [])
        if not variants:
            rest = everybody if _is_default(name, descriptions[name]) else tuple(sorted(silent))
            variants[rest] = silent
        elif not _apart(variants):
            known = {who: tuple(by) for who, by in variants.items()}
            disagreement = disagreement or Disagreement(name, known)
        for members in variants:
            of_name = ProcessGroup(name, descriptions[name], members)
            of_rank |= dict.fromkeys(((rank, name) for rank in members), of_name)
    return ProcessGroups(of_rank, disagreement)


def _is_default(name: str, description: str) -> bool:
    return description == "default_pg" or (name == DEFAULT and description in ("", "undefined"))


def _apart(variants: Iterable[tuple[int, ...]]) -> bool:
    """Whether no rank is in two of them."""
    ranks: set[int] = set()
    for members in variants:
        if not ranks.isdisjoint(members):
            return False
        ranks.update(members)
    return True


_SIGNATURE = re.compile(r"(\S+) \[(.*)\] \[(.*)\]")
_LONGEST_CALL = 80
_SHAPE = re.compile(r"\[([\d, ]*)\]")
_COMPARED = 8
"""Calls that follow, which tell whether one was left out."""


@dataclass(frozen=True)
class FirstMismatch:
    """Calls that met each other and differ."""

    group: ProcessGroup
    number: int
    calls: Mapping[str, tuple[int, ...]]
    """The ranks by what they called, most of them first."""
    culprits: tuple[int, ...] = ()
    """The fewer; of as many on either side those that called something more, and none where neither did."""
    skipped: str | None = None
    """What the culprits left out, where their further calls are those of the others, one later."""
    extra: str | None = None
    """What the culprits called more, where the further calls of the others are theirs, one later."""


def first_mismatch(group: ProcessGroup, dumps: Mapping[int, Dump]) -> FirstMismatch | None:
    """The first position where two ranks, whose rings both have it, called different things."""
    present = [dumps[rank] for rank in group.members if rank in dumps and group.name in dumps[rank].rings]
    for number in sorted(_numbers_that_differ(group.name, present)):
        calls: defaultdict[str, list[int]] = defaultdict(list)
        for dump in present:
            if (call := dump.call_at(group.name, number)) is not None:
                calls[call].append(dump.rank)
        if differ(calls):
            return _judge(group, number, calls, dumps)
    return None


def differ(calls: Sequence[str] | Mapping[str, Sequence[int]]) -> bool:
    """Whether calls cannot meet: shapes of as many elements can, since no backend knows more of a shape."""

    def elements(shape: re.Match[str]) -> str:
        return str(math.prod(int(length) for length in shape[1].split(",") if length.strip()))

    return len({_SHAPE.sub(elements, call) for call in calls}) > 1


def _numbers_that_differ(group: str, dumps: Sequence[Dump]) -> set[int]:
    """Positions at which some dump differs from the first dump that has them."""
    first: dict[int, int] = {}
    differing: set[int] = set()
    for dump in dumps:
        ring, of_first = dump.rings[group], dumps[0].rings[group]
        if ring is not of_first and ring == of_first:  # as most are, and comparing arrays is fast
            continue
        for number, signature in zip(ring.numbers, ring.signatures, strict=True):
            if first.setdefault(number, signature) != signature:
                differing.add(number)
    return differing


def _judge(
    group: ProcessGroup, number: int, calls: Mapping[str, list[int]], dumps: Mapping[int, Dump]
) -> FirstMismatch:
    ordered = sorted(calls.items(), key=lambda pair: (-len(pair[1]), pair[1]))
    others, suspects = ordered[0][1], ordered[1][1]
    divided = len(suspects) == len(others)
    skipped = _leads(dumps[others[0]], dumps[suspects[0]], group.name, number)
    extra = _leads(dumps[suspects[0]], dumps[others[0]], group.name, number)
    if divided and skipped and not extra:
        # As many left it out as called it: named is who called it, whose line is known.
        ordered[:2] = reversed(ordered[:2])
        suspects, skipped, extra = others, False, True
    fewer = (rank for _, ranks in ordered[1:] for rank in ranks)
    return FirstMismatch(
        group,
        number,
        {call: tuple(ranks) for call, ranks in ordered},
        () if divided and not extra else tuple(sorted(fewer)),
        skipped=ordered[0][0] if skipped and not extra else None,
        extra=ordered[1][0] if extra and not skipped else None,
    )


def _leads(dump: Dump, other: Dump, group: str, number: int) -> bool:
    """Whether one called something more there: from then on it calls one position later what the other calls."""
    steps = [(dump.call_at(group, n + 1), other.call_at(group, n)) for n in range(number, number + _COMPARED)]
    both = [(call, other_call) for call, other_call in steps if call is not None and other_call is not None]
    return bool(both) and all(call == other_call for call, other_call in both)


def call_phrase(signature: str) -> str:
    """``all_reduce of Float [1024]`` of a signature."""
    if (match := _SIGNATURE.fullmatch(signature)) is None or not match[2]:
        return shorten(match[1] if match else signature, _LONGEST_CALL)
    types = listing(sorted(set(match[3].replace("'", "").split(", "))))
    return shorten(f"{match[1]} of {types} {match[2]}".replace("of  ", "of "), _LONGEST_CALL)
