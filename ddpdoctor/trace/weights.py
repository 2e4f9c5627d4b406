"""Since when replicas hold different weights, and which ranks' weights moved by themselves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.files import StateLoad
from ddpdoctor.recorder.events.training import Collective, ForwardWeights, GradientCall, Wrapper
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.instances import by_key, on_each_rank
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.sync import (
    Digests,
    Group,
    Update,
    carries_weights,
    differing,
    updates,
    weights_are_made_equal,
)


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
    call: GradientCall | None = None
    """The torch.autograd.grad that gave the update its gradients."""
    sent_to_one: Collective | None = None
    """The reduction of such a gradient whose sum one rank alone gets."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks to look at: those that moved, or all where none or each of them did."""
        return self.moved or tuple(self.update.taken)

    @property
    def is_by_gradients(self) -> bool:
        """Whether the update made them differ, by gradients that were not the same after a backward."""
        return not self.before and not self.call and not self.load and bool(self.update.differing_gradients)

    @property
    def where(self) -> Where | None:
        """The line that changed them, where it is known, and otherwise the optimizer's step that met them."""
        cause = self.load or self.call or self.sent_to_one
        return cause.at if cause else self.update.where


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


def sharded_keys(group: Group) -> frozenset[str]:
    """Keys of what no wrapper knows, where ranks exchange activations on the way to the loss, so that each holds a part
    of its own by design (experts, classes that ranks divide); else none."""
    if not exchange_activations(group):
        return frozenset()
    optimizers = on_each_rank(group, lambda recording: recording.optimizers)
    return frozenset(key for _, optimizer in optimizers for key in optimizer.outside)


def exchange_activations(group: Group) -> bool:
    """Whether every rank exchanges activations on the way to the loss."""
    return all(
        any(_exchanges(step, wrapped=bool(recording.wrappers)) for step in recording.steps)
        for recording in group.values()
    )


def _exchanges(step: TrainingStep, *, wrapped: bool) -> bool:
    last = step.last_backward
    return any(
        collective.operation.startswith("all_to_all")
        # Where nothing is wrapped, what is summed before a backward may be gradients of an earlier one.
        or (wrapped and _sums_activations(collective))
        for collective in step.collectives
        if collective.time < last
    )


def _sums_activations(call: Collective) -> bool:
    is_sum = call.operation in ("all_reduce", "reduce_scatter", "reduce_scatter_tensor")
    return is_sum and carries_weights(call) and call.gradient_of is None and call.weight_of is None


def first_difference(group: Group, of: Callable[[str], bool] = lambda key: True) -> Difference | None:
    """The first update before or after which weights differ, of parameters that ``of`` lets be looked at; None where
    they stay equal."""
    parts = sharded_keys(group)
    known: dict[int, Digests] = {
        rank: {key: digest for wrapper in recording.wrappers for key, digest in wrapper.digests.items()}
        for rank, recording in group.items()
    }
    since = {rank: max((it.time for it in own.wrappers), default=0.0) for rank, own in group.items()}
    for update in updates(group):
        if keys := tuple(key for key in differing(update.before) if key not in parts and of(key)):
            return _changed_between(group, update, keys, known, since)
        if keys := tuple(key for key in differing(update.after) if key not in parts and of(key)):
            call = _gradient_call(group, update, keys, since)
            return Difference(update, keys, False, call=call, sent_to_one=_sent_to_one(update, keys))
        known = {rank: {**known[rank], **(after or {})} for rank, after in update.after.items()}
        since = {rank: step.time for rank, step in update.taken.items()}
    return None


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
    between = {
        rank: [
            load
            for load in group[rank].state_loads
            if load.kind == "module" and since[rank] <= load.time <= taken.time
        ]
        for rank, taken in update.taken.items()
    }
    lines = [{load.at for load in loads} for loads in between.values()]
    of_moved = [load for rank in moved for load in between[rank]]
    into = {_target(load) for load in of_moved}
    on_some = [
        load
        for loads in between.values()
        for load in loads
        if _target(load) in into and not all(load.at in at for at in lines)
    ]
    loads = on_some or of_moved
    call = None if loads else _gradient_call(group, update, keys, since)
    return Difference(update, keys, True, moved, loads[-1] if loads else None, call)


def _target(load: StateLoad) -> int | str:
    """The wrapper that it loaded into, or the class of a module that none holds."""
    return load.name if load.wrapper is None else load.wrapper


def _gradient_call(
    group: Group, update: Update, keys: tuple[str, ...], since: Mapping[int, float]
) -> GradientCall | None:
    """The last torch.autograd.grad before an update that may have given all gradients of these parameters."""
    if not update.differing_gradients:
        return None
    rank, taken = next(iter(update.taken.items()))
    calls = (call for call in group[rank].events(GradientCall) if since[rank] <= call.time <= taken.time)
    return next((call for call in reversed(tuple(calls)) if call.tensors >= len(keys)), None)


def _sent_to_one(update: Update, keys: tuple[str, ...]) -> Collective | None:
    """The last collective that took gradients of these parameters before an update, if it gave one rank their sum."""
    calls = next(iter(update.steps.values())).collectives
    last = next((call for call in reversed(calls) if call.gradient_of in keys), None)
    return last if last and last.operation == "reduce" else None


@dataclass(frozen=True)
class ForwardDifference:
    """The first forward that ranks computed with different weights, where no optimizer of torch trains them."""

    wrapper: Wrapper
    by_rank: Mapping[int, ForwardWeights]
    keys: tuple[str, ...]
    """The parameters that differ."""
    call: GradientCall | None
    """The torch.autograd.grad that took their gradients."""


def differences_at_forwards(recordings: Mapping[int, Recording]) -> list[ForwardDifference]:
    """Since when replicas differ that something other than an optimizer of torch trains; by wrapper.

    None where the script sends weights around, or where they are equal again later.
    """
    differences: list[ForwardDifference] = []
    wrappers = on_each_rank(recordings, lambda recording: recording.wrappers)
    # The same wrapper on the ranks of one process group.
    for by_rank in by_key(wrappers, lambda wrapper: (wrapper.index, wrapper.ranks)):
        group = {rank: recordings[rank] for rank in by_rank}
        calls = (call for recording in group.values() for call in recording.collectives)
        sends = weights_are_made_equal(group) or any(map(carries_weights, calls))
        if len(group) > 1 and not sends:
            differences += _at_forwards(group, next(iter(by_rank.values())))
    return differences


def parts_not_sent(group: Group) -> list[ForwardDifference]:
    """The weights that the optimizers of some ranks alone update, and that the others do not get, by wrapper.

    They differ in every forward after the first that they differ in, while other such weights are the same everywhere.
    """
    held = [{key for optimizer in it.optimizers for key in optimizer.keys} for it in group.values()]
    parts = set().union(*held).difference(set(held[0]).intersection(*held))
    left: list[ForwardDifference] = []
    for wrapper in next(iter(group.values())).wrappers:
        rows, apart = _rows(group, wrapper)
        last = apart[-1] if apart else ()
        if last and apart.count(last) > 1 and set(apart) <= {(), last} and set(last) < parts:
            left.append(ForwardDifference(wrapper, rows[-1], last, None))
    return left


def _at_forwards(group: Group, wrapper: Wrapper) -> list[ForwardDifference]:
    rows, apart = _rows(group, wrapper)
    if not apart or not apart[-1]:
        return []
    keys, row = next((keys, row) for keys, row in zip(apart, rows, strict=True) if keys)
    call = next(iter(next(iter(group.values())).events(GradientCall)), None)
    return [ForwardDifference(wrapper, row, keys, call)]


def _rows(group: Group, wrapper: Wrapper) -> tuple[list[dict[int, ForwardWeights]], list[tuple[str, ...]]]:
    """The forwards at which the weights of all ranks are known, in their order, and which differ there."""
    weights = on_each_rank(group, lambda recording: recording.events(ForwardWeights))
    of_wrapper = sorted(
        ((rank, event) for rank, event in weights if event.wrapper == wrapper.index),
        key=lambda pair: pair[1].number,
    )
    rows = [row for row in by_key(of_wrapper, lambda event: event.number) if len(row) == len(group)]
    return rows, [differing({rank: event.digests for rank, event in row.items()}) for row in rows]
