"""Loops that will end by what differs between ranks, though they have not yet: a clock, or a number of each rank's own.

Which conditions end a loop and what they are made of follows from the program; which of that differs, from the numbers
that the functions of the script held on each rank when a training step began, and from those that conditions looked at.
"""

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from ddpdoctor.excuses import Excuse
from ddpdoctor.model import Where
from ddpdoctor.program import Condition, Expression, Origin, Program, WayOut
from ddpdoctor.recorder.loop_numbers import LoopNumbers
from ddpdoctor.recorder.operations import gives_all
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.loop_exits import last_update, loops_of
from ddpdoctor.trace.recording import Recording

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_SAME = 1e-3
"""Relative difference up to which two ranks have the same number: GPUs do not always sum in one order."""
_MOST_STEPS = 32
"""In which values of a condition are compared."""

MAY_BE_OFF = Excuse(
    "a setting may keep it shut",
    """A way out of a loop that stands under a setting of which the run does not tell whether it is on, or that ends the
    loop after a time which may be no time at all (``limit=None``). Where it is off no rank leaves there. A bug that it
    hides: an early stop by each rank's own loss under ``if config["early_stop"]``, of which no number was recorded.""",
)


@dataclass(frozen=True)
class LocalExit:
    """A condition that ends a loop, or leaves out a backward, by a number of each rank's own."""

    at: Where
    name: str
    """Empty where it is the time."""
    values: Mapping[int, float]
    """By rank, where they differed first; none of the time."""


def local_exit(recordings: Mapping[int, Recording]) -> LocalExit | None:
    """A condition that ends a loop of joint training by what differs between ranks; None where none is certain.

    It is certain where nothing on the way from what differs to the condition makes ranks equal: no collective that the
    program calls there, nor any since training began where code on the way was not read.
    """
    job = _Job(recordings)
    for way_out in job.ways_out():
        if not job.is_shut(way_out) and (found := job.by_clock(way_out) or job.by_number(way_out)):
            return found
    return None


def skip_by_loss(recordings: Mapping[int, Recording]) -> LocalExit | None:
    """A condition by which a rank leaves out a backward because of its own loss: it is not finite, or past a limit;
    None where none is certain.

    It is certain where the losses differ and nothing was exchanged between any forward and its backward.
    """
    for row in zip(*(recording.steps for recording in recordings.values()), strict=False):
        steps = [(rank, step) for rank, step in zip(recordings, row, strict=True) if step.backwards]
        losses = {rank: step.backwards[-1].value for rank, step in steps}
        known = {rank: value for rank, value in losses.items() if value is not None}
        if any(map(_exchanges_before_backward, row)):
            return None
        if len(known) == len(recordings) and _differ(known.values()) and row[0].forwards:
            first = next(iter(recordings.values()))
            return _skips_by_loss(first, row[0], known)
    return None


def _skips_by_loss(recording: Recording, step: TrainingStep, losses: Mapping[int, float]) -> LocalExit | None:
    forward, backward = step.forwards[-1].at, step.backwards[-1].at
    branch = loops_of(recording, backward).skip_branch(forward, backward)
    test = Program.holding(branch, recording.script).test_at(branch) if branch else None
    if branch is None or test is None or forward is None:
        return None
    if test.asks_if_finite:
        return LocalExit(branch, "", losses)
    return _past_limit(recording, branch, test, forward, losses)


def _past_limit(
    recording: Recording, branch: Where, test: Expression, forward: Where, losses: Mapping[int, float]
) -> LocalExit | None:
    """Whether the condition compares what the forward gave with a limit that the script sets."""
    node = test.node
    if not isinstance(node, ast.Compare) or not isinstance(node.ops[0], _ORDERS) or len(node.ops) > 1:
        return None
    program, sides = test.program, [test.inner(node.left), test.inner(node.comparators[0])]
    given = {it.text for call in program.calls_at(forward) for of in call.arguments for it in of.variables()}

    def is_made(side: Expression) -> bool:
        calls = any(it.is_call and it.where.line == forward.line for it in side.made_of())
        return calls and given.isdisjoint(it.text for it in side.variables())

    loss, limit = sorted(sides, key=is_made, reverse=True)
    is_set = limit.only(Origin.ENVIRONMENT)
    names = {it.text for it in limit.variables()}
    held = {name: it for *_, values in _held(recording) for name, it in values.items() if name in names}
    off = len(held) < len(names) or any(it in (math.inf, -math.inf, None) for it in held.values())
    if off or not is_set or not is_made(loss):
        return None
    return LocalExit(branch, loss.text, losses)


def _exchanges_before_backward(step: TrainingStep) -> bool:
    begins = min((forward.time for forward in step.forwards), default=math.inf)
    ends = max((backward.time for backward in step.backwards), default=0.0)
    return any(begins <= call.time <= ends for call in step.collectives)


class _Job:
    """What ranks held, and the ways out of the loops in which they train."""

    def __init__(self, recordings: Mapping[int, Recording]) -> None:
        self._recordings = recordings
        self._first = next(iter(recordings.values()))
        self._moments: dict[tuple[object, Where], dict[int, Mapping[str, object]]] = {}
        """What each rank held, by the moment and the line."""
        around = cache(lambda at: Program.holding(at, self._first.script).around(at))
        for rank, recording in recordings.items():
            for moment, at, numbers in (*_held(recording), *_looked_at(recording, recordings)):
                self._moments.setdefault((moment, around(at)), {})[rank] = numbers

    def _in_function(self, at: Where) -> Iterator[dict[int, Mapping[str, object]]]:
        """What the function around a line held."""
        for (_, where), held in self._moments.items():
            if (where.file, where.function) == (at.file, at.function):
                yield held

    def ways_out(self) -> Iterator[WayOut]:
        """Those of the loops around the places from which a training step begins."""
        at = (event.at for event in self._first.events(LoopNumbers))
        for place in dict.fromkeys((*at, last_update(self._first))):
            if place is not None:
                ways = Program.holding(place, self._first.script).ways_out(place)
                yield from (way for way in ways if not any(it.test.asks_if_finite for it in way.needs))

    @cached_property
    def _exchanged(self) -> bool:
        return any(map(_exchanges, self._recordings.values()))

    def is_shut(self, way_out: WayOut) -> bool:
        """Whether settings keep a way out shut, or may."""
        return any(self._keeps_shut(way_out, it) for it in way_out.needs if not way_out.changes(it.test))

    def _keeps_shut(self, way_out: WayOut, setting: Condition) -> bool:
        if Origin.CLOCK in setting.test.origins.kinds:
            return False
        truth = setting.test.truth(self._settings(way_out))
        return (truth is None and MAY_BE_OFF.spares(str(way_out.at))) or truth is not setting.holds

    def _settings(self, way_out: WayOut) -> dict[str, object]:
        """What the function of a loop held last."""
        held = (next(iter(it.values())) for it in self._in_function(way_out.at))
        return {name: value for numbers in held for name, value in numbers.items()}

    def _is_endless(self, way_out: WayOut, it: Condition) -> bool:
        """Whether it compares with no limit at all."""
        held = self._settings(way_out)
        limits = (part for part in it.test.variables() if held.get(part.text) in (math.inf, -math.inf))
        return any(not way_out.changes(part) for part in limits)

    def by_clock(self, way_out: WayOut) -> LocalExit | None:
        """Whether the time decides, and all that the condition is made of is known."""
        for it in way_out.needs:
            origins = it.test.origins
            if Origin.CLOCK in origins.kinds and origins.known and not self._is_endless(way_out, it):
                if origins.may_be_none:
                    MAY_BE_OFF.spares(str(way_out.at))
                else:
                    return LocalExit(way_out.at, "", {})
        return None

    def by_number(self, way_out: WayOut) -> LocalExit | None:
        """The number of each rank's own that decides."""
        for it in way_out.needs:
            if self._is_endless(way_out, it) or (self._exchanged and not it.test.origins.known):
                continue
            for name, at in way_out.variables(it.test):
                if values := self._differing(name, at):
                    return LocalExit(way_out.at, name, values)
        return None

    def _differing(self, name: str, at: Where) -> dict[int, float]:
        """The values of a variable of the function around a line, where they were not the same on all ranks."""
        for held in self._in_function(at):
            values = {rank: numbers.get(name) for rank, numbers in held.items()}
            known = {rank: float(it) for rank, it in values.items() if isinstance(it, int | float)}
            if len(known) == len(self._recordings) and _differ(known.values()):
                return known
        return {}


def _held(recording: Recording) -> Iterator[tuple[object, Where, dict[str, object]]]:
    """What functions held when a training step began."""
    known: dict[tuple[str, str | None], dict[str, object]] = {}
    for event in recording.events(LoopNumbers):
        if event.at is not None:
            numbers = known.setdefault((event.at.file, event.at.function), {})
            numbers.update(event.values)
            yield (event.wrappers, event.step), event.at, dict(numbers)


def _looked_at(
    recording: Recording, recordings: Mapping[int, Recording]
) -> Iterator[tuple[object, Where, dict[str, object]]]:
    """What conditions looked at, in the steps in which that changed on any rank and this rank came to them."""
    for function, line in recording.lines.decisions:
        changed = (it.lines.decisions.get((function, line), ()) for it in recordings.values())
        came = {it.step for it in recording.lines.steps if line in it.lines.get(function, ())}
        for step in sorted({step for steps in changed for step, _ in steps} & came)[:_MOST_STEPS]:
            at = Where(function.file, line, function.name)
            yield step, at, dict(recording.lines.values(function, line, step))


def _exchanges(recording: Recording) -> bool:
    """Whether the script had a collective that gives something to all ranks, since the first training step."""
    began = next((event.time for event in recording.forwards if event.grad), math.inf)
    calls = (it for it in recording.collectives if it.gradient_of is None and it.weight_of is None)
    return any(call.time >= began and gives_all(call.operation) for call in calls)


def _differ(values: Iterable[float]) -> bool:
    numbers = list(values)
    if not all(map(math.isfinite, numbers)):
        return False
    spread = max(numbers) - min(numbers)
    return spread > _SAME * max(map(abs, numbers))
