"""Ranks that wait for each other in different collectives: where they parted, and by what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ddpdoctor.blame.place import Kind
from ddpdoctor.blame.standstill import Standstill
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.model import Confidence
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace.leaving import backwards_of, leavers, out_of_batches, skipped_at, skipped_step, skippers
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.stations import Station, alone, mismatch, parting, roots
from ddpdoctor.trace.training import TrainingStep
from ddpdoctor.trace.verdict.left import LEAVE_OUT_TOGETHER, fewer_batches, left_the_loop
from ddpdoctor.trace.verdict.standing import Standing, recordings_of
from ddpdoctor.trace.verdict.words import evidence, they, waiting_in

Crowd = Mapping[int, Standing]


def by_records(crowd: Crowd, circle: Sequence[int], standstill: Standstill) -> Verdict | None:
    """What the records of these ranks tell; None where they do not."""
    part = {rank: crowd[rank] for rank in circle}
    seen = recordings_of(part)
    if len(seen) < len(part):
        return None
    places = {rank: one.where for rank, one in part.items()}
    rules = (
        (_unused, [rank for rank in seen if _left_unreduced(part[rank], part)]),
        (fewer_batches, out_of_batches(seen)),
        (_skipped, skippers(seen, [rank for rank, one in part.items() if _in_backward(one)])),
        (left_the_loop, leavers(seen, places)),
    )
    for tell, found in rules:
        if found and len(found) < len(part):
            return tell(crowd, found, standstill)
    return _by_stations(crowd, part, seen, standstill)


def _in_backward(one: Standing) -> bool:
    return one.place is not None and one.place.kind is Kind.BACKWARD


def _left_unreduced(one: Standing, part: Crowd) -> bool:
    """Whether its last backward ended without the all-reduce in which the others still are."""
    in_backward = [other for other in part.values() if _in_backward(other)]
    if one in in_backward or not in_backward or one.recording is None or not one.recording.wrappers:
        return False
    step = _last_step(one.recording)
    if step is None or not step.backwards or step.backwards[-1].reduced:
        return False
    through = [f for f in step.forwards if f.grad and f.synced and not f.around]
    return bool(through) and _averaged(one.recording) + 1 == max(
        _averaged(other.recording) + 1 for other in in_backward if other.recording
    )


def _last_step(recording: Recording) -> TrainingStep | None:
    if recording.trailing and recording.trailing.backwards:
        return recording.trailing
    return recording.steps[-1] if recording.steps else None


def _averaged(recording: Recording) -> int:
    return sum(bool(one.reduced) for one in backwards_of(recording))


def _unused(crowd: Crowd, ranks: Sequence[int], standstill: Standstill) -> Verdict:
    others = [rank for rank, one in crowd.items() if _in_backward(one)]
    recording = crowd[ranks[0]].recording
    step = _last_step(recording) if recording else None
    return Verdict(
        "DD204",
        f"{ranks_phrase(ranks)} came out of backward without a gradient for some parameters, and "
        f"{ranks_phrase(others)} {they(others, 'waits', 'wait')} there for "
        f"{they(ranks, 'its', 'their')} part",
        why=f"DDP averages every gradient across all ranks. The backward of {ranks_phrase(ranks)} did not reach every "
        f"parameter, so nothing was averaged there and {they(ranks, 'it', 'they')} went on, while the others wait "
        "up to the timeout of the process group.",
        fix="use them on every rank in every step, a term of weight zero is enough: loss + 0 * unused.sum()\n"
        "or, where skipping is intended: DistributedDataParallel(model, find_unused_parameters=True)",
        culprits=tuple(ranks),
        waiting=tuple(others),
        where=step.backwards[-1].at if step else None,
        evidence=evidence(crowd, standstill),
    )


def _skipped(crowd: Crowd, ranks: Sequence[int], standstill: Standstill) -> Verdict:
    recording = crowd[ranks[0]].recording
    step = skipped_step(recording) if recording else None
    others = [rank for rank, one in crowd.items() if rank not in ranks and one.waits]
    return Verdict(
        "DD308",
        f"{ranks_phrase(ranks)} left out the backward of training step {step.index if step else '?'}, and "
        f"{ranks_phrase(others)} {they(others, 'waits', 'wait')} in {waiting_in(crowd, others)}",
        why="Each backward of DDP needs every rank. Whether to run it was decided from values of one rank alone, so "
        "from there on that rank is one collective ahead of the others.",
        fix=LEAVE_OUT_TOGETHER,
        culprits=tuple(ranks),
        waiting=tuple(others),
        where=skipped_at(recording) if recording else None,
        evidence=evidence(crowd, standstill),
    )


def _by_stations(
    crowd: Crowd, part: Crowd, seen: Mapping[int, Recording], standstill: Standstill
) -> Verdict | None:
    """By the first position at which they did different things; by where they are now, where records are thinned."""
    now = {rank: station for rank, one in part.items() if (station := station_of(one))}
    parted = parting(seen, now)
    row = dict(parted.stations) if parted else now
    several = (
        len({one.key for one in row.values()} | _sizes(row.values())) > 1 or len(roots(row.values())) > 1
    )
    if len(row) < len(part) or not several:
        return None
    told = alone(row) or mismatch(row)
    culprits = told.culprits if told.code == "DD303" else _fewest(row)
    where = row[culprits[0]].at if culprits else told.where
    return Verdict(
        told.code,
        told.headline,
        told.why,
        told.fix,
        culprits,
        tuple(rank for rank in part if rank not in culprits),
        where,
        (*told.evidence, *evidence(crowd, standstill)),
    )


def _sizes(row: Iterable[Station]) -> set[tuple[str, str, bool]]:
    return {("size", str(one.size), True) for one in row if one.size}


def _fewest(row: Mapping[int, Station]) -> tuple[int, ...]:
    """The ranks that did something else than most; all where most did not agree."""
    by_call: dict[object, list[int]] = {}
    for rank, one in row.items():
        by_call.setdefault((one.key, one.size, one.root), []).append(rank)
    most = max(by_call.values(), key=len)
    if 2 * len(most) <= len(row):
        return tuple(sorted(row))
    return tuple(rank for rank in sorted(row) if rank not in most)


_AS_STATION = {Kind.BACKWARD: "backward", Kind.FORWARD: "forward", Kind.DESTROY: "left"}


def station_of(one: Standing) -> Station | None:
    """Where a rank waits, as a station of its course; None where it does not."""
    if not one.waits or one.place is None:
        return None
    kind, what, where = one.place.kind, one.place.what, one.where
    last = one.recording.last if one.recording else 0.0
    if kind is Kind.FORWARD:
        wrapper, learns = _forward_here(one)
        return Station("forward", wrapper, where, last, learns=learns)
    return Station(_AS_STATION.get(kind, "collective"), "" if kind is Kind.BACKWARD else what, where, last)


def _forward_here(one: Standing) -> tuple[str, bool]:
    """Which wrapper's forward a line calls, and whether it learns, as that line did before."""
    recording = one.recording
    steps = recording.steps if recording else ()
    trailing = (recording.trailing,) if recording and recording.trailing else ()
    known = [forward for step in (*steps, *trailing) for forward in step.forwards]
    known += recording.evaluation_forwards if recording else ()
    place = one.where
    here = [f for f in known if place and f.at and (f.at.file, f.at.line) == (place.file, place.line)]
    if here:
        return str(here[-1].wrapper), here[-1].grad
    return (str(known[-1].wrapper), False) if known else ("0", True)


def by_stacks(crowd: Crowd, circle: Sequence[int], standstill: Standstill) -> Verdict:
    """Where no record tells, what stacks support: who waits in what (DD302)."""
    row = {rank: station for rank in circle if (station := station_of(crowd[rank]))}
    lines: dict[tuple[str, object], list[int]] = {}
    for rank, one in row.items():
        lines.setdefault((one.name, one.at), []).append(rank)
    states = sorted(lines.items(), key=lambda pair: (-len(pair[1]), pair[1]))
    (_, most), *fewer = states
    odd = tuple(sorted(rank for _, ranks in fewer for rank in ranks))
    culprits = odd if odd and len(most) > len(odd) else tuple(sorted(row))
    said = ", ".join(
        f"{ranks_phrase(ranks)} {they(ranks, 'waits', 'wait')} in {waiting_in(crowd, ranks)}"
        for _, ranks in sorted(states, key=lambda pair: pair[1])[:3]
    )
    return Verdict(
        "DD302",
        said,
        why="Collectives are matched by their order alone, and each of these waits for ranks that are in another one. "
        "Some ranks called something that the others did not: under a condition on the rank, in a loop that they "
        "left at different steps, or on a parameter that one rank left out. Stacks alone do not show which.",
        fix="bring every rank through the same collectives in the same order; to see where they parted:\n"
        "ddpdoctor check train.py     # or ddpdoctor watch -- torchrun ..., which record it",
        culprits=culprits,
        waiting=tuple(rank for rank in sorted(row) if rank not in culprits),
        where=crowd[culprits[0]].where,
        evidence=evidence(crowd, standstill),
        confidence=Confidence.LIKELY,
    )


def lines_differ(crowd: Crowd, ranks: Iterable[int]) -> bool:
    """Whether ranks of one state called it from different lines."""
    return len({crowd[rank].where for rank in ranks}) > 1
