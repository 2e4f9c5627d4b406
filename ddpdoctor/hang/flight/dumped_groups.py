"""The process groups of a job, put together from what each rank's dump says of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ddpdoctor.blame.hang_snapshot import Dump

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
    """The groups, as told; else whoever used one, and everybody for the default group.

    Args:
        dumps: by rank.
        world_size: of the job, where it is known.
    """
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
            disagreement = disagreement or Disagreement(
                name, {who: tuple(by) for who, by in variants.items()}
            )
        _fill(of_rank, name, descriptions[name], variants)
    return ProcessGroups(of_rank, disagreement)


def _fill(
    of_rank: dict[tuple[int, str], ProcessGroup],
    name: str,
    description: str,
    variants: Iterable[tuple[int, ...]],
) -> None:
    for members in variants:
        group = ProcessGroup(name, description, members)
        of_rank.update({(rank, name): group for rank in members})


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
