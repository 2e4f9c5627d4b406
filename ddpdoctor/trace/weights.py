"""Since when replicas hold different weights, and which ranks' weights moved by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.files import StateLoad
from ddpdoctor.recorder.events.training import Wrapper
from ddpdoctor.trace.sharded_parameters import sharded_keys
from ddpdoctor.trace.sync import Digests, Group, Update, differing, updates


@dataclass(frozen=True)
class Difference:
    """The first moment at which ranks were seen to hold different weights."""

    update: Update
    keys: tuple[str, ...]
    """The parameters that differ."""
    before: bool
    """Whether they differed before the update already, so that something else than an update made them so."""
    moved: tuple[int, ...] = ()
    """The ranks on which they changed outside of an update; none where that is not known."""
    load: StateLoad | None = None
    """The load_state_dict of such a rank that lies between."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks to look at: those that moved, or all where none or each of them did."""
        return self.moved or tuple(self.update.taken)

    @property
    def where(self) -> Where | None:
        """The line that changed them, where it is known, and otherwise the optimizer's step that met them."""
        return self.load.at if self.load else self.update.where


def differences(group: Group) -> list[tuple[Wrapper | None, Difference]]:
    """Since when the weights of each wrapped model differ, and those of the parameters that no wrapper holds."""
    wrappers = next(iter(group.values())).wrappers
    held = [frozenset(parameter.key for parameter in wrapper.parameters) for wrapper in wrappers]
    rest = frozenset[str]().union(*held)
    differences: list[tuple[Wrapper | None, Difference | None]] = [
        (wrapper, first_difference(group, keys.__contains__))
        for wrapper, keys in zip(wrappers, held, strict=True)
    ]
    differences.append((None, first_difference(group, lambda key: key not in rest)))
    return [(wrapper, difference) for wrapper, difference in differences if difference]


def first_difference(group: Group, of: Callable[[str], bool] = lambda key: True) -> Difference | None:
    """The first update before or after which weights differ; None where they stay equal.

    Args:
        of: whether a parameter is looked at.
    """
    parts = sharded_keys(group)
    known = {rank: _after_wrap(group, rank) for rank in group}
    since = {
        rank: max((wrapper.time for wrapper in recording.wrappers), default=0.0)
        for rank, recording in group.items()
    }
    for update in updates(group):
        if keys := tuple(key for key in differing(update.before) if key not in parts and of(key)):
            return _changed_between(group, update, keys, known, since)
        if keys := tuple(key for key in differing(update.after) if key not in parts and of(key)):
            return Difference(update, keys, before=False)
        known = {rank: {**known[rank], **(after or {})} for rank, after in update.after.items()}
        since = {rank: step.time for rank, step in update.taken.items()}
    return None


def _after_wrap(group: Group, rank: int) -> Digests:
    return {key: digest for wrapper in group[rank].wrappers for key, digest in wrapper.digests.items()}


def _changed_between(
    group: Group,
    update: Update,
    keys: tuple[str, ...],
    known: Mapping[int, Digests],
    since: Mapping[int, float],
) -> Difference:
    moved = tuple(
        rank
        for rank, before in update.before.items()
        if any(known[rank].get(key) not in (None, (before or {}).get(key)) for key in keys)
    )
    loads = [
        load
        for rank in moved
        for load in group[rank].state_loads
        if load.kind == "module" and since[rank] <= load.time <= update.taken[rank].time
    ]
    return Difference(update, keys, True, moved, loads[-1] if loads else None)
