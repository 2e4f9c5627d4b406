"""Which lines one rank reached, in which step, and what its conditions looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ddpdoctor.blame.frames import from_here
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.lines import Called, Code, Decided, Plain, Reached
from ddpdoctor.trace.record import Record

Values: TypeAlias = Mapping[str, Plain]


class Function(NamedTuple):
    """A function of the script, the same on all ranks."""

    file: str
    name: str
    line: int


@dataclass(frozen=True)
class StepLines:
    """What one rank reached from one training step to the next."""

    step: int
    lines: Mapping[Function, frozenset[int]]
    order: tuple[tuple[Function, int], ...] = ()
    """The conditions, in the order in which each was first reached."""
    partial: bool = False
    """Whether it may have reached more."""


@dataclass(frozen=True)
class RankLines:
    """What one rank reached."""

    steps: tuple[StepLines, ...] = ()
    branches: Mapping[Function, Mapping[int, tuple[int, ...]]] = field(default_factory=dict)
    """The conditions of each function, with the lines that may come next."""
    callers: Mapping[Function, frozenset[Where]] = field(default_factory=dict)
    """The lines that led to each function."""
    decisions: Mapping[tuple[Function, int], tuple[tuple[int, Values], ...]] = field(default_factory=dict)
    """What each condition looked at: the step and the values, where they changed."""

    def values(self, function: Function, line: int, step: int) -> dict[str, Plain]:
        """What a condition looked at in a step."""
        values: dict[str, Plain] = {}
        for since, changed in self.decisions.get((function, line), ()):
            if since <= step:
                values.update(changed)
        return values


def lines_of(record: Record) -> RankLines:
    """What a record tells of lines."""
    codes = {
        code.number: (Function(from_here(code.file), code.function, code.line), code)
        for code in record.events(Code)
    }
    functions = {number: function for number, (function, _) in codes.items()}
    reached = record.events(Reached)
    steps = {event.number: event.step for event in reached}
    callers: dict[Function, set[Where]] = defaultdict(set)
    for call in record.events(Called):
        if call.at is not None and call.code in functions:
            callers[functions[call.code]].add(call.at)
    decisions: dict[tuple[Function, int], list[tuple[int, Values]]] = defaultdict(list)
    for decided in record.events(Decided):
        if decided.code in functions:
            at = functions[decided.code], decided.line
            decisions[at].append((steps.get(decided.number, 0), decided.values))
    return RankLines(
        tuple(_steps(reached, functions)),
        {
            function: {line: tuple(after) for line, *after in code.branches}
            for function, code in codes.values()
        },
        {function: frozenset(places) for function, places in callers.items()},
        {at: tuple(values) for at, values in decisions.items()},
    )


def _steps(reached: Iterable[Reached], functions: Mapping[int, Function]) -> Iterator[StepLines]:
    now: dict[int, set[int]] = defaultdict(set)
    order: tuple[tuple[int, ...], ...] = ()
    for event in reached:
        for number, *ranges in event.more:
            now[number] |= _spread(ranges)
        for number, *ranges in event.fewer:
            now[number] -= _spread(ranges)
        order = order if event.order is None else event.order
        yield StepLines(
            event.step,
            {functions[number]: frozenset(lines) for number, lines in now.items() if number in functions},
            tuple((functions[number], line) for number, line in order if number in functions),
            event.partial,
        )


def _spread(ranges: Sequence[int]) -> set[int]:
    pairs = zip(ranges[::2], ranges[1::2], strict=True)
    return {line for begin, end in pairs for line in range(begin, end + 1)}
