"""The instances of a problem in a run: the same one on several ranks is one, and what it is about has one name."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Protocol, TypeVar

from ddpdoctor.model import Evidence, Kind, Subject, Where
from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.recorder.events.training import Wrapper
from ddpdoctor.redact import quote
from ddpdoctor.text import by_state
from ddpdoctor.trace.recording import Recording


class Placed(Protocol):
    """Something that a line of the script did."""

    @property
    def at(self) -> Where | None:
        """The line."""


_T = TypeVar("_T")
_P = TypeVar("_P", bound=Placed)
_Value = TypeVar("_Value", bound=Hashable)


def on_each_rank(
    recordings: Mapping[int, Recording], events: Callable[[Recording], Iterable[_T]]
) -> list[tuple[int, _T]]:
    """What each rank's recording holds of something, with the rank."""
    return [(rank, event) for rank, recording in recordings.items() for event in events(recording)]


def grouped(instances: Iterable[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Instances by what they have in common, in order."""
    groups: dict[Hashable, list[_T]] = {}
    for instance in instances:
        groups.setdefault(key(instance), []).append(instance)
    return list(groups.values())


def in_turn(instances: Iterable[tuple[int, _T]]) -> Iterator[dict[int, _T]]:
    """The first instance of each rank, the second of each, and so on; none of fewer than two ranks."""
    by_rank: dict[int, list[_T]] = {}
    for rank, instance in instances:
        by_rank.setdefault(rank, []).append(instance)
    if len(by_rank) > 1:
        for row in zip(*by_rank.values(), strict=False):
            yield dict(zip(by_rank, row, strict=True))


def by_key(instances: Iterable[tuple[int, _T]], key: Callable[[_T], Hashable]) -> list[dict[int, _T]]:
    """Instances by what they have in common, in order: of each, the first on every rank that has it."""
    groups: dict[Hashable, dict[int, _T]] = {}
    for rank, instance in instances:
        groups.setdefault(key(instance), {}).setdefault(rank, instance)
    return list(groups.values())


def by_line(instances: Iterable[tuple[int, _P]]) -> list[dict[int, _P]]:
    """Instances by the line of the script, in order: of each line, the first on every rank that came there."""
    return by_key(instances, lambda instance: instance.at)


def by_first_line(
    shared: Mapping[_Value, Mapping[int, _T]], line: Callable[[_T], Hashable]
) -> list[dict[_Value, Mapping[int, _T]]]:
    """What ranks share, such as files, by the line in which its first rank does it.

    One line is one cause, however many files come of it, and whichever ranks share each of them.
    """
    return [dict(of_line) for of_line in grouped(shared.items(), lambda it: line(next(iter(it[1].values()))))]


def on_ranks(instances: Mapping[int, _P], text: Callable[[_P], str]) -> dict[str, Any]:
    """The fields of a finding that rests on an instance of each rank: where and evidence, equal texts once."""
    return {"where": next(iter(instances.values())).at, "evidence": by_state(instances, text)}


def by_value(values: Mapping[int, _Value]) -> dict[_Value, tuple[int, ...]]:
    """The ranks that have each value, in order of first appearance."""
    ranks: dict[_Value, tuple[int, ...]] = {}
    for rank, value in values.items():
        ranks[value] = (*ranks.get(value, ()), rank)
    return ranks


def files(paths: Iterable[str]) -> str:
    """Files as a headline names them: ``'last.pt' and 2 more files``."""
    first, *others = dict.fromkeys(paths)
    more = f" and {len(others)} more file{'s' if len(others) > 1 else ''}" if others else ""
    return (quote(PurePath(first).name) if first else "a buffer") + more


def made_at(recordings: Mapping[int, Recording], optimizer: int) -> Where | None:
    """Where an optimizer was constructed, on the first rank."""
    made = next(iter(recordings.values())).optimizer(optimizer)
    return made.made if made else None


def shown_at(what: str, at: Where | None) -> tuple[Evidence, ...]:
    """Where the problem shows, as evidence beside the line to change."""
    return (Evidence(f"{what} at {at.file}:{at.line}", where=at),) if at else ()


def of_loader(loader: Loader) -> tuple[Subject, ...]:
    """A DataLoader as findings name it: by the line that made it, whatever number of times that ran."""
    return Kind.LOADER.of(f"{loader.at.file}:{loader.at.line}" if loader.at else f"loader {loader.index}")


def of_model(*wrappers: Wrapper) -> tuple[Subject, ...]:
    """Wrapped models as findings name them."""
    return Kind.MODEL.of(*(f"{it.module} (wrapper {it.index})" if it.index else it.module for it in wrappers))
