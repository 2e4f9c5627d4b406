"""Whether a run of the changed copy shows that a finding is cured, and that nothing else changed that must not."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ddpdoctor import registry
from ddpdoctor.fix.patches import may_change
from ddpdoctor.model import Finding, Kind, Level, Where
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.updates import Optimizer
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.recording import Identity, Recording

_Run = TypeVar("_Run")
_Key = TypeVar("_Key")
_Fact = TypeVar("_Fact")
Key = tuple[str, frozenset[tuple[str, str]], str]
"""A finding's code, what it is about, and its line where it is about nothing that has a name."""
Moved = Callable[[str, int], int | None]
"""The line that a line of a file has in the copy; None where it changed."""
_CLOSE = 1e-3
"""By which part losses of the same batch may differ: kernels add in another order."""
_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


@dataclass(frozen=True)
class Ran:
    """A run and what was found in it, with the files named as the user's own are."""

    trace: Trace
    findings: tuple[Finding, ...]
    real: Callable[[str], str] = str
    """The user's own file in place of the copy's, in whose terms the trace names files."""


@dataclass(frozen=True)
class Verdict:
    """What came out of a run of the changed copy."""

    verified: bool
    text: str
    """In a clause."""
    new: tuple[Finding, ...] = ()
    """Findings that were not there before; their lines are those of the copy."""
    more: tuple[str, ...] = ()
    """Further clauses, which hold of all that the run was for."""

    @property
    def told(self) -> str:
        """All clauses, as a report shows them."""
        return "; ".join((self.text, *self.more))


def key_of(finding: Finding, moved: Moved = lambda _, line: line) -> Key:
    """What tells a finding apart from others, with lines as they are in the copy."""
    about = frozenset((subject.kind.value, _moved(subject.name, moved)) for subject in finding.about)
    where = finding.where
    place = f"{where.file}:{where.line}" if where and not about else ""
    return finding.code, about, _moved(place, moved)


def _moved(name: str, moved: Moved) -> str:
    place = _LINE.fullmatch(name)
    return f"{place['file']}:{moved(place['file'], int(place['line']))}" if place else name


def judge(cured: Iterable[Finding], before: Ran, after: Ran, moved: Moved) -> Verdict:
    """What the run of the copy says of a patch for these findings, and of those that were cured with it."""
    cured = tuple(cured)
    codes = ", ".join(dict.fromkeys(finding.code for finding in cured))
    targets = {key_of(finding, moved) for finding in cured}
    known = {key_of(finding, moved) for finding in before.findings} - targets
    counts = {finding.code for finding in cured}
    there = {key_of(it): it for it in after.findings if it.level is not Level.INFO or it.code in counts}
    new = {key: finding for key, finding in there.items() if key not in known}
    timed = _timed(new)
    unknown = {key: finding for key, finding in new.items() if key[0] in counts or key[0] not in timed}
    if any(key[0] in counts for key in unknown):
        return Verdict(False, f"{codes} is found again")
    further = ", ".join(dict.fromkeys(key[0] for key in unknown))
    # Of a run that did not come to train it is not known what it would show.
    is_revealed = _trained(after.trace) and not _trained(before.trace)
    if unknown and not is_revealed:
        return Verdict(False, f"it brings {further}", tuple(unknown.values()))
    if changed := next(filter(None, _changes(cured, before, after)), None):
        return Verdict(False, changed)
    gone = f"{codes} {'is' if ',' not in codes else 'are'} gone"
    if slow := ", ".join(_timed(targets)):
        return Verdict(False, f"{gone} in this run, but one run does not tell for {slow}, which goes by time")
    more = [f"the ranks train now, with {further}"] if unknown else []
    if timed:
        more.append(f"{', '.join(timed)} in this run says nothing of the patch: it goes by time")
    return Verdict(True, gone if unknown else f"{gone}, nothing new", more=tuple(more))


def _timed(keys: Iterable[Key]) -> list[str]:
    """The codes of checks that judge how long something took."""
    codes = dict.fromkeys(key[0] for key in keys)
    return [code for code in codes if (check := registry.by_code(code)) and check.timed]


def _changes(cured: tuple[Finding, ...], ran: Ran, ran_after: Ran) -> Iterator[str | None]:
    before, after = ran.trace, ran_after.trace
    if before.broken and after.broken:
        yield f"neither the script nor the changed copy comes to its end: {after.broken}"
    yield f"the changed copy does not end: {after.broken}" if after.broken else None
    yield _training(before, after)
    kinds = {subject.kind for finding in cured for subject in finding.about}
    if kinds.isdisjoint((Kind.MODEL, Kind.PARAMETER)):
        # By name and shape.
        yield "the parameters of the model are others" if _shapes(before) - _shapes(after) else None
        yield _optimized(before, after)
    yield _samples(before, after)
    yield _held_out(before, after)
    yield _updates(before, after)
    yield _losses(before, after)
    yield _files(cured, ran, ran_after)
    yield _entries(ran, ran_after)
    if _group_sizes(before) != _group_sizes(after):  # what each rank computes is meant to change
        return
    yield _hyperparameters(before, after)
    allowed = may_change([finding.code for finding in cured])
    if "samples" not in allowed:
        yield _own_samples(before, after)
        if "loss" not in allowed:
            yield _first_loss(before, after)


def _hyperparameters(before: Trace, after: Trace) -> str | None:
    """Each optimizer takes its first step with the same hyperparameters. In a group of another size it need not: a
    script may scale its learning rate by the number of ranks, and a patch may mend that number."""
    for (rank, _), groups, others in _in_both(_first_steps, before, after):
        for group, other in zip(groups, others, strict=False):
            for name in sorted(group.keys() & other.keys()):
                if group[name] != other[name]:
                    return f"{name} of rank {rank} is {other[name]}, not {group[name]}, in its first update"
    return None


def _in_both(
    facts: Callable[[_Run], Mapping[_Key, _Fact]], before: _Run, after: _Run
) -> Iterator[tuple[_Key, _Fact, _Fact]]:
    """What is known of both runs, by what it is about."""
    second = facts(after)
    return ((key, first, second[key]) for key, first in facts(before).items() if key in second)


def _group_sizes(trace: Trace) -> dict[int, int | None]:
    made = {rank: recording.group_events("init") for rank, recording in trace.recorded.items()}
    return {rank: inits[0].size for rank, inits in made.items() if inits}


def _first_steps(trace: Trace) -> dict[tuple[int, Identity], tuple[Mapping[str, Any], ...]]:
    """The hyperparameters of each first step, by rank and by what the optimizer updates."""
    first: dict[tuple[int, Identity], tuple[Mapping[str, Any], ...]] = {}
    for rank, recording in trace.recorded.items():
        for step in recording.all_steps:
            for update in step.optimizer_steps:
                identity = recording.identities.get(update.optimizer)
                if identity is not None and update.hyperparameters:
                    first.setdefault((rank, identity), update.hyperparameters)
    return first


def _files(cured: tuple[Finding, ...], before: Ran, after: Ran) -> str | None:
    """The first file that each rank wrote at a line is still written by some rank; not those of the finding itself.

    Names may differ in each run, as with the time in them: then as many others are written.
    """
    about = [subject.name for finding in cured for subject in finding.about if subject.kind is Kind.PATH]
    first, second = _first_written(before), _written(after)
    lost = {
        path
        for path in first - second
        if not any(path == name or path.startswith(f"{name.rstrip('/')}/") for name in about)
    }
    missing = len(lost) - len(second - _written(before))
    return f"{sorted(lost)[0].rpartition('/')[2]} is no longer written" if missing > 0 else None


def _written(ran: Ran) -> set[str]:
    """The files that ranks wrote."""
    return {path for recording in ran.trace.recorded.values() for _, path in _writes(recording, ran)}


def _entries(before: Ran, after: Ran) -> str | None:
    """A checkpoint that both wrote has as many entries."""
    for path, save, other in _in_both(_first_saves, before, after):
        if len(other.entries) < len(save.entries):
            left = sorted(set(save.entries) - set(other.entries))
            return f"{path.rpartition('/')[2]} no longer has {left[0] if left else 'all of its entries'}"
    return None


def _first_saves(ran: Ran) -> dict[str, Save]:
    """What was first written to each path of a checkpoint."""
    first: dict[str, Save] = {}
    for recording in ran.trace.recorded.values():
        for save in recording.saves:
            if save.path and save.entries:
                first.setdefault(ran.real(save.path), save)
    return first


def _first_written(ran: Ran) -> set[str]:
    """The file that each rank wrote first at each line: how many it writes later depends on how long it trains."""
    first: dict[tuple[int, Where | None], str] = {}
    for rank, recording in ran.trace.recorded.items():
        for at, path in _writes(recording, ran):
            first.setdefault((rank, at), path)
    return set(first.values())


def _writes(recording: Recording, ran: Ran) -> Iterator[tuple[Where | None, str]]:
    for save in recording.saves:
        if save.path:
            yield save.at, ran.real(save.path)
    for event in recording.files:
        if event.action == "write":
            yield event.at, ran.real(event.path)


def training_job(trace: Trace) -> Trace:
    """Of the jobs that a launch line ran, the one that trained the most; if that did not end, the last one."""
    jobs = [trace] if trace.broken else [trace, *trace.before]
    return max(jobs, key=lambda job: sum(recording.step_count for recording in job.recorded.values()))


def _training(before: Trace, after: Trace) -> str | None:
    """Each rank that trained, or wrapped a model, still does."""
    for does, what in (_trained, "does not train"), (_wrapped, "wraps no model"):
        if stopped := [rank for rank in does(before) if rank not in does(after)]:
            return f"rank {stopped[0]} of the changed copy {what}"
    return None


def _trained(trace: Trace) -> list[int]:
    return [rank for rank, recording in trace.recorded.items() if recording.step_count]


def _wrapped(trace: Trace) -> list[int]:
    return [rank for rank, recording in trace.recorded.items() if recording.wrappers]


def _shapes(trace: Trace) -> set[tuple[str, tuple[int, ...]]]:
    wrappers = (it for recording in trace.recorded.values() for it in recording.wrappers if not it.failed)
    return {(parameter.key, parameter.shape) for wrapper in wrappers for parameter in wrapper.parameters}


def _samples(before: Trace, after: Trace) -> str | None:
    """All ranks together still see the same samples in an epoch, but for what batches of equal size leave out."""
    first, second = _seen(before), _seen(after)
    if not first or not second:
        return None
    loaders = [it for recording in after.recorded.values() for it in recording.loaders[:1]]
    left_out = sum(it.batch_size or 1 for it in loaders)
    lost = len(first) - len(second)
    return f"{lost} samples of an epoch are no longer trained on" if lost > left_out else None


def _optimized(before: Trace, after: Trace) -> str | None:
    """An optimizer that takes steps in both runs still updates all of its parameters."""
    for (rank, _), keys, others in _in_both(_keys, before, after):
        if left := sorted(key for key in keys if set(others).isdisjoint(_names_inside(key))):
            return f"rank {rank} of the changed copy no longer updates {left[0]}"
        if len(others) < len(keys):
            return f"rank {rank} of the changed copy updates {len(others)} of {len(keys)} parameters"
    return None


def _keys(trace: Trace) -> dict[tuple[int, int], list[str]]:
    """The parameters of each rank's optimizers, by their names in a module or a wrapper."""
    recordings = trace.recorded.items()
    made = ((rank, one) for rank, recording in recordings for one in recording.events(Optimizer))
    return {(rank, one.index): [key.partition(" (wrapper ")[0] for key in one.keys] for rank, one in made}


def _names_inside(key: str) -> list[str]:
    """A parameter's name in the outermost module that holds it, and in those inside, which a copy may wrap."""
    parts = key.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _updates(before: Trace, after: Trace) -> str | None:
    """Each rank updates its weights about as often in the batches that it takes: ranks that agree on a batch may leave
    out more than one of them did, but not most."""
    for rank, (steps, batches), (fewer, others) in _in_both(_steps_and_batches, before, after):
        if fewer * batches * 2 < steps * others:
            times = f"{fewer} updates in {others} batches, not {steps} in {batches}"
            return f"rank {rank} of the changed copy takes {times}"
    return None


def _steps_and_batches(trace: Trace) -> dict[int, tuple[int, int]]:
    recordings = trace.recorded.items()
    drawn = {rank: sum(it.drawn for it in recording.training_passes) for rank, recording in recordings}
    # Batches may be kept, and trained on again.
    return {rank: (min(trace.recorded[rank].step_count, it), it) for rank, it in drawn.items() if it}


def _own_samples(before: Trace, after: Trace) -> str | None:
    """Each rank trains on as many samples of an epoch as before; on the same where their order follows from a seed."""
    for rank, pass_, other in _in_both(_first_passes, before, after):
        if pass_.indices is None or other.indices is None:
            continue
        count, now = len(pass_.indices), len(other.indices)
        if count != now:
            return f"rank {rank} of the changed copy trains on {now} samples of an epoch, not on {count}"
        # A DistributedSampler gives both their order.
        epochs = [it.sampler.epoch for it in (pass_, other) if it.sampler and it.sampler.distributed]
        is_fixed = len(epochs) == 2 and epochs[0] == epochs[1]
        if is_fixed and set(pass_.indices) != set(other.indices):
            return f"rank {rank} of the changed copy trains on other samples"
    return None


def _first_passes(trace: Trace) -> dict[int, Pass]:
    recordings = trace.recorded.items()
    return {rank: recording.training_passes[0] for rank, recording in recordings if recording.training_passes}


def _first_loss(before: Trace, after: Trace) -> str | None:
    """The first loss of a rank stays, where it is computed from the same weights, batch and random state."""
    for rank, (state, loss), (other_state, other) in _in_both(_beginnings, before, after):
        if state == other_state and not math.isclose(loss, other, rel_tol=_CLOSE, abs_tol=_CLOSE):
            return f"the first loss of rank {rank} is {other:.4g}, not {loss:.4g}"
    return None


def _beginnings(trace: Trace) -> dict[int, tuple[tuple[object, ...], float]]:
    """What the first loss of each rank was computed from, and its value, where all of it was recorded."""
    begun: dict[int, tuple[tuple[object, ...], float]] = {}
    for rank, recording in trace.recorded.items():
        forward = next((forward for forward in recording.forwards if forward.grad), None)
        value = next((backward.value for backward in recording.backwards), None)
        weights = [tuple(sorted(wrapper.digests.items())) for wrapper in recording.wrappers]
        if forward and forward.input and value is not None and all(weights) and weights:
            begun[rank] = (forward.input, forward.random, *weights), value
    return begun


def _held_out(before: Trace, after: Trace) -> str | None:
    """All ranks together still draw the samples of a loader in which nothing trains, those of an evaluation."""
    sizes = {it.index: it.batch_size or 1 for rank in after.recorded.values() for it in rank.loaders}
    drawn = _in_both(_drawn_without_training, before, after)
    lost = (first - second for loader, first, second in drawn if first - second > sizes.get(loader, 1))
    most = max(lost, default=0)
    return f"{most} samples of an evaluation are no longer drawn" if most else None


def _losses(before: Trace, after: Trace) -> str | None:
    """A loss that was finite in every step stays so."""
    second = _infinite(after)
    return f"the loss of rank {second[0]} is not finite" if second and not _infinite(before) else None


def _infinite(trace: Trace) -> list[int]:
    """The ranks that took gradients of a loss that is not finite."""
    recordings = trace.recorded.items()
    return [rank for rank, recording in recordings if any(it.finite is False for it in recording.backwards)]


def _seen(trace: Trace) -> set[int]:
    """The samples of the first pass in which each rank trains."""
    return {index for pass_ in _first_passes(trace).values() for index in pass_.indices or ()}


def _drawn_without_training(trace: Trace) -> dict[int, int]:
    """By loader over which no pass trains, how many samples all ranks together draw in their first pass.

    Where each rank splits off samples of its own, those of one rank are as many as an evaluation can have.
    """
    recordings = trace.recorded.values()
    trains = {pass_.loader for recording in recordings for pass_ in recording.training_passes}
    drawn: dict[int, set[int]] = {}
    for pass_ in (it for recording in recordings for it in recording.passes if it.loader not in trains):
        if pass_.number == 0 and pass_.indices is not None:
            drawn.setdefault(pass_.loader, set()).update(pass_.indices)
    most = {loader.index: loader.samples for recording in recordings for loader in recording.loaders}
    return {loader: min(len(samples), most.get(loader) or len(samples)) for loader, samples in drawn.items()}
