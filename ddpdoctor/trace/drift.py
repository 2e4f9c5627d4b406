"""What changes over a long run: pace, data, memory, losses, checkpoints; from what ranks tell of their progress.

Pieces of a run that have equally many steps are compared, so evaluations and checkpoints are in all of them alike.
"""

import math
import random
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate, pairwise
from statistics import fmean, median, quantiles

from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.training import Progress
from ddpdoctor.text import duration, ranks_do, ranks_phrase, size

FEWEST = 24
"""Values of a series."""
_CHANCE = 1e-3
"""Of such a course without a change, at most."""
_APART = 0.95
"""Of all pairs of a value before and one after, in which the later one lies on the same side."""
_DRAWS = 200
_OUTLIERS = 20
"""One value in so many is an outlier at either end, which draws no line to itself."""
_LEAST_SIDE = 3


@dataclass(frozen=True)
class Change:
    """A change that stayed."""

    at: int
    """The first value that is other."""
    interval: tuple[int, int]
    """That holds it with 95 % confidence."""
    before: float
    """The median."""
    after: float
    """The median of the last half of what follows."""


def change_of(values: Sequence[float]) -> Change | None:
    """How a series changed; None where it did not, or it cannot be told from chance."""
    if len(values) < FEWEST or not _is_unlikely(values):
        return None
    clipped = _without_outliers(values)
    at, fitted = _fit(clipped)
    before, after = values[:at], values[at:]
    lasting = after[len(after) // 2 :]
    if not _lie_apart(before, lasting):
        return None
    draw, drawn = random.Random(0), []
    apart = [value - fit for value, fit in zip(clipped, fitted, strict=True)]
    for _ in range(_DRAWS):
        own = (draw.choices(apart[:at], k=at), draw.choices(apart[at:], k=len(apart) - at))
        again = [fit + noise for fit, noise in zip(fitted, (*own[0], *own[1]), strict=True)]
        drawn.append(_fit(again)[0])
    drawn.sort()
    low, high = drawn[_DRAWS // 40], drawn[-1 - _DRAWS // 40]
    return Change(at, (min(low, at), max(high, at)), median(before), median(lasting))


def _is_unlikely(values: Sequence[float]) -> bool:
    """Pettitt's test."""
    count, ordered = len(values), sorted(values)
    ranks = [(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values]
    statistic = max(abs(2 * total - n * (count + 1)) for n, total in enumerate(accumulate(ranks), 1))
    return 2 * math.exp(-6 * statistic**2 / (count**3 + count**2)) < _CHANCE


def _lie_apart(before: Sequence[float], after: Sequence[float]) -> bool:
    late = sorted(after)
    above = sum(len(late) - bisect_right(late, early) for early in before)
    below = sum(bisect_left(late, early) for early in before)
    return max(above, below) >= _APART * len(before) * len(late)


def _without_outliers(values: Sequence[float]) -> list[float]:
    *_, least = quantiles([-value for value in values], n=_OUTLIERS)
    *_, most = quantiles(values, n=_OUTLIERS)
    return [min(max(value, -least), most) for value in values]


def _fit(values: Sequence[float]) -> tuple[int, list[float]]:
    """Where the best of all jumps and bends is, and the values that it gives."""
    count = len(values)
    sums = [0.0, *accumulate(values)]
    weighted = [0.0, *accumulate(number * value for number, value in enumerate(values))]
    best: tuple[float, int, float, float, float] = (-math.inf, 0, 0.0, 0.0, 0.0)
    for at in range(_LEAST_SIDE, count - _LEAST_SIDE + 1):
        late = count - at
        early_mean, late_mean = sums[at] / at, (sums[-1] - sums[at]) / late
        explained = sums[at] * early_mean + (sums[-1] - sums[at]) * late_mean
        best = max(best, (explained, at, early_mean, late_mean, 0.0))
        # A bend is level + slope * (number - at + 1) from there on.
        first, second = late * (late + 1) / 2, late * (late + 1) * (2 * late + 1) / 6
        product = weighted[-1] - weighted[at] - (at - 1) * (sums[-1] - sums[at])
        slope = (product - first * sums[-1] / count) / (second - first * first / count)
        level = (sums[-1] - slope * first) / count
        best = max(best, (level * sums[-1] + slope * product, at, level, level, slope))
    _, at, level, then, slope = best
    return at, [level] * at + [then + slope * number for number in range(1, count - at + 1)]


_PIECES = 40
_PARTS = 3
"""Of a piece, which counts as their median: a pause in one of them does not matter."""
_WARM_UP = 3
"""Times that a rank tells of its progress, at the beginning."""
_SLOWER, _SLOWER_SAVES, _SLOWER_SAVE_SECONDS = 1.15, 1.5, 0.5
_LONG = 600.0
"""Seconds: a shorter run is slowed by whatever else begins on its hosts, and only what it waited for tells more."""
_GROWN, _GROWN_BYTES = 1.1, 64 << 20
_STILL_GROWS = 0.5
"""Of the mean growth: less over the last quarter is memory that fills up to what is needed."""
_LOSSES_APART = 0.25
"""Of the loss."""


class Kind(str, Enum):
    """What changes."""

    PACE = "pace"
    MEMORY = "memory"
    LOSS = "loss"
    SAVES = "checkpoints"


@dataclass(frozen=True)
class Drift:
    """A change that stayed."""

    kind: Kind
    ranks: tuple[int, ...]
    step: int
    """At which it began."""
    interval: tuple[int, int]
    """Of steps, that holds it with 95 % confidence."""
    before: float
    after: float
    waits_for_data: tuple[int, ...] = ()
    """Of the pace: the ranks whose DataLoader explains at least half of it."""
    save: Save | None = None
    """The last, of checkpoints."""

    @property
    def sentence(self) -> str:
        """``training slowed from 10.0 to 14.1 ms a step since step 41,200``."""
        return f"{_SENTENCES[self.kind](self)} since step {self.step:,}"


def _of_pace(drift: Drift) -> str:
    by = f": {ranks_do(drift.waits_for_data, 'wait')} longer for data" if drift.waits_for_data else ""
    return f"training slowed from {duration(drift.before)} to {duration(drift.after)} a step{by}"


_SENTENCES: dict[Kind, Callable[[Drift], str]] = {
    Kind.PACE: _of_pace,
    Kind.MEMORY: lambda it: (
        f"memory of {ranks_phrase(it.ranks)} grew from {size(int(it.before))} to "
        f"{size(int(it.after))} and still grows"
    ),
    Kind.LOSS: lambda it: (
        f"the loss of {ranks_phrase(it.ranks)} is {abs(it.after - it.before):.0%} "
        f"{'above' if it.after > it.before else 'below'} that of the others"
    ),
    Kind.SAVES: lambda it: (
        f"checkpoints of {ranks_phrase(it.ranks)} take {duration(it.after)}, not {duration(it.before)}"
    ),
}


@dataclass(frozen=True)
class Course:
    """A rank's run, in pieces of equally many steps."""

    ends: tuple[int, ...]
    """The step that each piece ends with; one more for where the first begins."""
    pace: tuple[float, ...]
    """Seconds a step."""
    data: tuple[float, ...]
    """Of them, what it waited for batches."""
    memory: tuple[float, ...]
    losses: tuple[float | None, ...]

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        pieces = zip(self.pace, pairwise(self.ends), strict=True)
        return sum(pace * (end - begin) for pace, (begin, end) in pieces)


def course_of(told: Sequence[Progress]) -> Course | None:
    """A rank's run as it told of it; None where it is too short."""
    told = list({one.steps: one for one in told if one.steps and one.time}.values())[_WARM_UP:]
    pieces = min(_PIECES, (len(told) - 1) // _PARTS)
    if pieces < FEWEST:
        return None
    first, last, parts = told[0].steps, told[-1].steps, pieces * _PARTS
    ends = tuple(first + (last - first) * number // parts for number in range(parts + 1))
    steps = [one.steps for one in told]
    if last - first < parts:
        return None
    times, waited, memory = (
        [_between(steps, values, end) for end in ends]
        for values in ([it.time for it in told], [it.waited for it in told], [it.memory for it in told])
    )
    losses = defaultdict[int, list[float]](list)
    for one in told:
        if one.loss is not None:
            losses[(bisect_right(ends, one.steps) - 1) // _PARTS].append(one.loss)
    return Course(
        ends[::_PARTS],
        _rates(times, ends),
        _rates(waited, ends),
        _medians(memory[1:]),
        tuple(fmean(losses[piece]) if losses[piece] else None for piece in range(pieces)),
    )


def _between(steps: Sequence[int], values: Sequence[float], at: int) -> float:
    after = min(max(1, bisect_right(steps, at)), len(steps) - 1)
    share = (at - steps[after - 1]) / (steps[after] - steps[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])


def _rates(values: Sequence[float], ends: Sequence[int]) -> tuple[float, ...]:
    pairs = zip(pairwise(values), pairwise(ends), strict=True)
    return _medians([(value - before) / (end - begin) for (before, value), (begin, end) in pairs])


def _medians(parts: Sequence[float]) -> tuple[float, ...]:
    return tuple(median(parts[i : i + _PARTS]) for i in range(0, len(parts), _PARTS))


def courses_of(told: Mapping[int, Sequence[Progress]]) -> dict[int, Course]:
    """The runs of the ranks that ran long enough, by rank."""
    return {rank: course for rank, own in told.items() if (course := course_of(own))}


def drifts_of(
    courses: Mapping[int, Course], told: Mapping[int, Sequence[Progress]], saves: Mapping[int, Sequence[Save]]
) -> Iterator[Drift]:
    """What changed in a run, by the courses of what each rank told of its progress, and by its checkpoints."""
    if courses:
        yield from _pace(courses)
        yield from _memory(courses)
        yield from _losses(courses)
    for rank, own in saves.items():
        yield from _saves(rank, own, told.get(rank, ()))


def _drift(kind: Kind, ranks: tuple[int, ...], ends: Sequence[int], change: Change) -> Drift:
    low, high = change.interval
    interval = ends[max(0, low - 1)], ends[min(high + 1, len(ends) - 1)]
    return Drift(kind, ranks, ends[change.at], interval, change.before, change.after)


def _pace(courses: Mapping[int, Course]) -> Iterator[Drift]:
    course = courses[min(courses)]  # all ranks run at one
    change = change_of(course.pace)
    if change is None or change.after < _SLOWER * change.before:
        return
    drift = _drift(Kind.PACE, tuple(courses), course.ends, change)
    longer = {rank: _rise(own.data, change) for rank, own in courses.items()}
    most = max(longer.values())
    waiting = tuple(
        rank
        for rank, seconds in longer.items()
        if most > (change.after - change.before) / 2 and seconds > most / 2
    )
    if waiting or course.seconds >= _LONG:
        yield replace(drift, waits_for_data=waiting)


def _rise(values: Sequence[float], change: Change) -> float:
    after = values[change.at :]
    return median(after[len(after) // 2 :]) - median(values[: change.at]) if after else 0.0


def _memory(courses: Mapping[int, Course]) -> Iterator[Drift]:
    grown: dict[int, Drift] = {}
    for rank, course in courses.items():
        memory = course.memory
        before, late = median(memory[: len(memory) // 4]), memory[-1 - len(memory) // 4]
        if memory[-1] < max(before * _GROWN, before + _GROWN_BYTES):
            continue
        change = change_of(memory)
        if change is None or change.at >= len(memory) - 1:
            continue
        began = memory[change.at - 1]
        rate = (memory[-1] - began) / (len(memory) - change.at)
        if memory[-1] - late >= _STILL_GROWS * rate * min(len(memory) // 4, len(memory) - change.at):
            drift = _drift(Kind.MEMORY, (rank,), course.ends, change)
            grown[rank] = replace(drift, before=began, after=memory[-1])
    if grown:
        first = min(grown.values(), key=lambda drift: drift.step)
        yield replace(first, ranks=tuple(grown))


def _losses(courses: Mapping[int, Course]) -> Iterator[Drift]:
    if len(courses) < 2:
        return
    pieces = min(len(course.losses) for course in courses.values())
    rows = [{rank: course.losses[piece] for rank, course in courses.items()} for piece in range(pieces)]
    found = []
    for rank, course in courses.items():
        apart: list[tuple[int, float]] = []
        for piece, row in enumerate(rows):
            others = [loss for other, loss in row.items() if other != rank and loss is not None]
            own = row[rank]
            if own is not None and others and (usual := median(others)):
                apart.append((course.ends[piece + 1], (own - usual) / abs(usual)))
        change = change_of([value for _, value in apart])
        moves = change is not None and abs(change.after - change.before) >= _LOSSES_APART
        if change and moves and abs(change.after) > abs(change.before):
            found.append(_drift(Kind.LOSS, (rank,), [step for step, _ in apart], change))
    if found:
        yield max(found, key=lambda drift: drift.after - drift.before)


def _saves(rank: int, saves: Sequence[Save], told: Sequence[Progress]) -> Iterator[Drift]:
    by_line = defaultdict[object, list[Save]](list)
    for save in saves:
        if save.end is not None:
            by_line[save.at].append(save)
    times, steps = [one.time for one in told], [one.steps for one in told]
    for own in by_line.values():
        jump = change_of([(save.end or 0.0) - save.begin for save in own])
        if jump is None or jump.after < max(jump.before * _SLOWER_SAVES, jump.before + _SLOWER_SAVE_SECONDS):
            continue
        at = [steps[max(0, bisect_right(times, save.begin) - 1)] if steps else 0 for save in own]
        yield replace(_drift(Kind.SAVES, (rank,), at, jump), save=own[-1])
