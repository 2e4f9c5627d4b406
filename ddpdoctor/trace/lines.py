"""Which lines ranks reached, in which step, at which condition they took different branches, and whether only some
ranks are meant to come to a line: by what ranks did, or else by the text of the program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ddpdoctor.blame.frames import from_here
from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Program
from ddpdoctor.recorder.events.process import RETURNED, Called, Code, Decided, Plain, Reached
from ddpdoctor.text import by_state
from ddpdoctor.trace.record import Record

if TYPE_CHECKING:
    from ddpdoctor.trace.recording import Recording


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


_MOST_RANKS = 1024
_MOST_VALUES = 4
"""Of a condition, that evidence lists."""


@dataclass(frozen=True)
class Parting:
    """A condition at which ranks took different branches."""

    function: Function
    line: int
    step: int
    ranks: tuple[int, ...]
    """Those that went on to :attr:`to`."""
    others: tuple[int, ...]
    """Those that came to the condition as well, and went elsewhere."""
    to: int
    """A line of the function; ``RETURNED``."""
    values: Mapping[int, Values] = field(default_factory=dict)
    """What the condition looked at, by rank."""

    @property
    def at(self) -> Where:
        """The line of the condition."""
        return Where(self.function.file, self.line, self.function.name)

    def evidence(self) -> tuple[Evidence, ...]:
        """The values that differ between ranks; none where no plain value decided."""
        names = {name for values in self.values.values() for name in values}
        differing = [
            it for it in sorted(names) if len({repr(values.get(it)) for values in self.values.values()}) > 1
        ][:_MOST_VALUES]
        texts = {
            rank: ", ".join(
                f"{name} = {value:.6g}" if isinstance(value := values[name], float) else f"{name} = {value!r}"
                for name in differing
                if name in values
            )
            for rank, values in self.values.items()
        }
        return by_state({rank: text for rank, text in texts.items() if text})


@dataclass(frozen=True)
class JobLines:
    """What all ranks reached; of those whose lines were recorded."""

    ranks: Mapping[int, RankLines]

    @staticmethod
    def of(recordings: Mapping[int, Recording]) -> JobLines | None:
        """The lines of a job; None where those of a rank were not recorded, or where there are very many ranks."""
        if not 1 < len(recordings) <= _MOST_RANKS:
            return None
        ranks = {rank: recording.lines for rank, recording in recordings.items()}
        return JobLines(ranks) if all(it.steps for it in ranks.values()) else None

    @cached_property
    def _by_step(self) -> dict[int, dict[int, StepLines]]:
        """The steps by number, of each rank that was in it."""
        steps: dict[int, dict[int, StepLines]] = defaultdict(dict)
        for rank, lines in self.ranks.items():
            for step in lines.steps:
                steps[step.step][rank] = step
        return steps

    def functions_at(self, where: Where) -> set[Function]:
        """The functions in which a line was reached."""
        return {
            function
            for lines in self.ranks.values()
            for step in lines.steps
            for function, reached in step.lines.items()
            if function.file == where.file and where.line in reached
        }

    def steps_reaching(self, rank: int, where: Where) -> tuple[int, ...]:
        """The steps in which a rank reached a line."""
        return tuple(
            it.step
            for it in self.ranks[rank].steps
            if any(where.line in lines for function, lines in it.lines.items() if function.file == where.file)
        )

    def ranks_reaching(self, where: Where) -> frozenset[int]:
        """The ranks that reached a line, in any step."""
        return frozenset(rank for rank in self.ranks if self.steps_reaching(rank, where))

    # Where ranks part.

    def partings(self, step: int) -> list[Parting]:
        """The conditions of a step at which ranks took different branches, in the order of the first rank there."""
        found = [it for function in self._functions(step) for it in self._partings_in(function, step)]
        places = self._order(self._by_step.get(step, {}).values())
        return sorted(found, key=lambda it: places.get((it.function, it.line), len(places)))

    def _order(self, steps: Iterable[StepLines]) -> dict[tuple[Function, int], int]:
        """The position of each condition among those that these came to."""
        places = dict.fromkeys(place for each in steps for place in each.order)
        return {place: number for number, place in enumerate(places)}

    def _functions(self, step: int) -> list[Function]:
        known = (each.lines for each in self._by_step.get(step, {}).values())
        return list(dict.fromkeys(function for lines in known for function in lines))

    def _branches(self, function: Function) -> dict[int, tuple[int, ...]]:
        """The conditions of a function, with the lines that may come next."""
        known = (lines.branches.get(function, {}) for lines in self.ranks.values())
        return {line: after for each in known for line, after in each.items()}

    def _partings_in(self, function: Function, step: int, only: int | None = None) -> Iterator[Parting]:
        """Those of a function; ``only`` those at one line."""
        for line, after in self._branches(function).items():
            taken = self._taken(function, line, after, step) if only in (None, line) else {}
            for target in after if taken else ():
                ranks = tuple(rank for rank, lines in taken.items() if target in lines)
                others = tuple(rank for rank in taken if rank not in ranks)
                if ranks and others:
                    values = {rank: self.ranks[rank].values(function, line, step) for rank in taken}
                    yield Parting(function, line, step, ranks, others, target, values)

    def _taken(
        self, function: Function, line: int, after: Collection[int], step: int
    ) -> dict[int, frozenset[int]]:
        """The branches that each rank took that came to a condition and went on."""
        taken = {}
        for rank, reached in self._by_step.get(step, {}).items():
            lines = reached.lines.get(function, frozenset())
            went = lines.intersection(after)
            if line in lines and went and not reached.partial:
                taken[rank] = went
        return taken

    def way_out(
        self, leavers: Sequence[int], inside: Where | None = None, step: int | None = None
    ) -> Parting | None:
        """The last condition by which these ranks went another way than the others, in this step, by default the last
        one of these ranks; ``inside`` is a line of the function whose conditions come first."""
        if step is None:
            step = min((self.ranks[rank].steps[-1].step for rank in leavers), default=-1)
        others = set(self.ranks) - set(leavers)
        found = [
            it
            for it in self.partings(step)
            if set(leavers) <= set(it.ranks) and others <= set(it.others) and not self._is_constant(it)
        ]
        order = self._order(it for it in self.ranks[leavers[0]].steps if it.step == step)
        found.sort(key=lambda it: order.get((it.function, it.line), -1))
        place = inside and (inside.file, inside.function)
        near = [it for it in found if (it.at.file, it.at.function) == place]
        chosen = near or found
        return chosen[-1] if chosen else None

    def part_at(self, where: Where) -> bool:
        """Whether ranks took different branches at a condition, in any step."""
        return any(
            True
            for function in self.functions_at(where)
            for step in self._by_step
            for _ in self._partings_in(function, step, where.line)
        )

    def _is_constant(self, parting: Parting) -> bool:
        """Whether the ranks took these branches in an earlier step, too, and went on together after that."""
        return any(
            (it.at, it.to, it.ranks) == (parting.at, parting.to, parting.ranks)
            for step in self._by_step
            if step < parting.step
            for it in self._partings_in(parting.function, step, parting.line)
        )

    # Lines that some ranks never reach.

    def guard(self, where: Where) -> tuple[Parting, bool | None] | None:
        """The condition in front of a line, in its function, that keeps some ranks from it; None where all reach it.

        With it, whether each rank took the same branch whenever it came there; None where ranks came there too seldom.
        """
        ranks = self.ranks_reaching(where)
        others = set(self.ranks) - ranks
        if not ranks or not others:
            return None
        found: dict[Where, list[Parting]] = defaultdict(list)
        for function in self.functions_at(where):
            for step in self._by_step:
                for it in self._partings_in(function, step):
                    leads = it.to != RETURNED and it.line < (where.line or 0)
                    if leads and set(it.ranks) <= ranks and set(it.others) <= others:
                        found[it.at].append(it)
        near = [at for at in found if found[at][-1].to <= (where.line or 0)]
        if not near:
            return None
        at = max(near, key=lambda it: it.line or 0)
        parting, always = found[at][0], self._always(found[at][0])
        return parting, always if len(found[at]) >= _OFTEN or not always else None

    def _always(self, parting: Parting) -> bool:
        """Whether a rank that comes to a condition takes the same branch each time, as these ranks do."""
        after = self._branches(parting.function)[parting.line]
        return not any(
            (parting.to in went) != (rank in parting.ranks)
            for step in self._by_step
            for rank, went in self._taken(parting.function, parting.line, after, step).items()
        )

    def leading_calls(self, where: Where) -> frozenset[Where]:
        """The lines that led to the functions in which a line was reached."""
        functions = self.functions_at(where)
        return frozenset(
            place
            for lines in self.ranks.values()
            for function in functions
            for place in lines.callers.get(function, ())
        )

    def reached(self) -> dict[str, frozenset[int]]:
        """The lines that any rank reached, by file."""
        lines: dict[str, set[int]] = defaultdict(set)
        for rank in self.ranks.values():
            for step in rank.steps:
                for function, reached in step.lines.items():
                    lines[function.file] |= reached - {RETURNED}
        return {file: frozenset(reached) for file, reached in lines.items()}


_OFTEN = 2
"""Steps in which ranks part at a condition each time, each the same way, before it is one on the rank."""


def is_for_some_ranks(where: Where | None, recordings: Mapping[int, Recording]) -> bool:
    """Whether a line stands under a condition on the rank, or is only led to by a call that does."""
    is_guarded = where is not None and _is_guarded(where, recordings)
    return is_guarded or guarded_call(where, recordings) is not None


def guarded_call(where: Where | None, recordings: Mapping[int, Recording]) -> Where | None:
    """The call under a condition on the rank that leads to a line which itself is under none.

    None where the line is under one, and where several such calls lead to it, or none.
    """
    job, visited = JobLines.of(recordings), set[Where]()
    while where is not None and where not in visited:
        if _is_guarded(where, recordings):
            return None
        visited.add(where)
        calls = _calls(where, job, recordings)
        guarded = [call for call in calls if _is_guarded(call, recordings)]
        if len(guarded) == 1:
            return guarded[0]
        if guarded or len(calls) != 1:
            return None
        where = calls[0]
    return None


def decision(where: Where | None, recordings: Mapping[int, Recording]) -> tuple[Evidence, ...]:
    """What the condition in front of a line looked at on each rank, where it kept some ranks from it."""
    job = JobLines.of(recordings)
    guard = job.guard(where) if job is not None and where is not None else None
    return guard[0].evidence() if guard is not None else ()


def _calls(where: Where, job: JobLines | None, recordings: Mapping[int, Recording]) -> list[Where]:
    """The lines that call the function of a line: those that led to it, where that was recorded."""
    led = {(it.file, it.line): replace(it, columns=None) for it in job.leading_calls(where)} if job else {}
    return list(led.values()) or program_of(where, recordings).callers(where)


def _is_guarded(where: Where, recordings: Mapping[int, Recording]) -> bool:
    job = JobLines.of(recordings)
    if job is not None and (reaching := job.ranks_reaching(where)):
        if len(reaching) == len(job.ranks):
            return False
        guard = job.guard(where)
        if guard is not None and guard[1] is not None:
            return guard[1]
    return program_of(where, recordings).guard(where) is not None


def program_of(where: Where, recordings: Mapping[int, Recording]) -> Program:
    """The program of a job, or the one that a line's file is of where the job's does not have it."""
    return Program.holding(where, next((it.script for it in recordings.values() if it.script), ""))
