"""Loops that end by a number that differs between ranks: the condition from the source, the number from the run."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import TypeAlias

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.recorder.loop_numbers import LoopNumbers
from ddpdoctor.trace.assignments import Assignment, assignments, dotted, set_by_callees
from ddpdoctor.trace.clock_exits import reads_clock
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.source_loops import skip_branch
from ddpdoctor.trace.syntax import called_name, enclosing_function, lines, own_nodes, parsed
from ddpdoctor.trace.training import TrainingStep

Numbers: TypeAlias = Mapping[str, float | None]
_SAME = 1e-3
"""Relative difference up to which two ranks have the same number: GPUs do not always sum in one order."""
_TRANSPARENT = {"float", "int", "bool", "abs", "round", "item", "detach", "cpu"}
"""Calls whose result is as local as what they are given."""
_FINITE = {"isnan", "isinf", "isfinite"}
"""Questions that ranks answer alike, once gradients were averaged."""
_TO_ONE_RANK = ("reduce", "gather", "gather_object", "send", "recv", "isend", "irecv", "batch_isend_irecv")
_WITHOUT_VALUES = ("barrier", "monitored_barrier")
_DEPTH = 4
"""Assignments between a number and the condition that it decides."""


@dataclass(frozen=True)
class LocalExit:
    """A condition that ends a loop, and a number of each rank's own that decides it."""

    at: Where
    name: str
    values: Mapping[int, float]
    """By rank, where they differed first."""


@dataclass(frozen=True)
class _Exit:
    """One way out of a loop."""

    loop: ast.For | ast.While
    line: int
    tests: tuple[tuple[ast.expr, bool], ...]
    """The conditions that lead to it, the outermost first, and whether each has to hold."""


def local_exit(recordings: Mapping[int, Recording]) -> LocalExit | None:
    """A condition that ends a loop of joint training by what differs between ranks; None where none is certain.

    It is certain where the condition compares such a number itself, or is made of it by the function around it and
    nothing that all ranks get was exchanged since training began.
    """
    exchanged = any(map(_exchanges, recordings.values()))
    for moment in _moments(recordings):
        at = next(iter(moment.values())).at
        for way in _exits(at):
            if result := _decided(at, way, moment, exchanged=exchanged):
                return result
    return None


def skip_of_the_infinite(recordings: Mapping[int, Recording]) -> LocalExit | None:
    """A condition by which a rank leaves out a backward because its own loss is not finite; None where none is certain.

    It is certain where the losses differ and nothing was exchanged between any forward and its backward.
    """
    for row in zip(*(recording.steps for recording in recordings.values()), strict=False):
        losses = {
            rank: step.backwards[-1].value
            for rank, step in zip(recordings, row, strict=True)
            if step.backwards
        }
        known = {rank: value for rank, value in losses.items() if value is not None}
        if any(map(_exchanges_before_backward, row)):
            return None
        if len(known) == len(recordings) and _differ(known.values()) and row[0].forwards:
            branch = skip_branch(row[0].forwards[-1].at, row[0].backwards[-1].at)
            tests = _tests_on(branch) if branch else []
            return LocalExit(branch, "loss", known) if branch and _asks_for_the_infinite(tests) else None
    return None


def _tests_on(line: Where) -> list[ast.expr]:
    nodes = ast.walk(parsed(line.file) or ast.Module([], []))
    return [node.test for node in nodes if isinstance(node, ast.If) and node.lineno == line.line]


def _exchanges_before_backward(step: TrainingStep) -> bool:
    begins = min((forward.time for forward in step.forwards), default=math.inf)
    ends = max((backward.time for backward in step.backwards), default=0.0)
    return any(begins <= call.time <= ends for call in step.collectives)


@dataclass(frozen=True)
class _Held:
    """What a function held on one rank at one moment."""

    at: Where
    numbers: Numbers


def _moments(recordings: Mapping[int, Recording]) -> Iterator[dict[int, _Held]]:
    """The moments that were looked at on every rank, function by function."""
    held = {rank: dict(_held(recording)) for rank, recording in recordings.items()}
    first, *others = held.values()
    for key in first:
        if all(key in other for other in others):
            yield {rank: moments[key] for rank, moments in held.items()}


def _held(recording: Recording) -> Iterator[tuple[tuple[object, ...], _Held]]:
    known: dict[tuple[str, str | None], dict[str, float | None]] = {}
    for event in recording.events(LoopNumbers):
        if event.at is not None:
            numbers = known.setdefault((event.at.file, event.at.function), {})
            numbers.update(event.values)
            key = (event.wrappers, event.step, event.at.file, event.at.line)
            yield key, _Held(event.at, dict(numbers))


def _exchanges(recording: Recording) -> bool:
    """Whether the script had a collective that gives something to all ranks, since the first training step."""
    began = next((event.time for event in recording.forwards if event.grad), math.inf)
    return any(call.time >= began and _is_for_all(call) for call in recording.collectives)


def _is_for_all(call: Collective) -> bool:
    is_model = call.gradient_of is not None or call.weight_of is not None
    return not is_model and call.operation not in (*_TO_ONE_RANK, *_WITHOUT_VALUES)


@cache
def _exits(at: Where) -> tuple[_Exit, ...]:
    """The ways out of the loops around a line of its function, where each training step begins."""
    return tuple(_ways_out_of_loops(at))


def _ways_out_of_loops(at: Where) -> Iterator[_Exit]:
    tree = parsed(at.file)
    if tree is None or at.line is None:
        return
    scope = enclosing_function(tree, at.line)
    loops = [node for node in own_nodes(scope) if isinstance(node, ast.For | ast.While)]
    for loop in (loop for loop in loops if at.line in lines(loop)):
        if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant):
            yield _Exit(loop, loop.lineno, ((loop.test, False),))
        yield from _ways_out(loop, loop.body, (), inner=False)


def _ways_out(
    loop: ast.For | ast.While,
    body: Iterable[ast.stmt],
    tests: tuple[tuple[ast.expr, bool], ...],
    *,
    inner: bool,
) -> Iterator[_Exit]:
    """Those below some statements, each under the conditions that lead there."""
    for node in body:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break) and not inner):
            if tests:
                yield _Exit(loop, tests[-1][0].lineno, tests)
        elif isinstance(node, ast.If):
            yield from _ways_out(loop, node.body, (*tests, (node.test, True)), inner=inner)
            yield from _ways_out(loop, node.orelse, (*tests, (node.test, False)), inner=inner)
        elif isinstance(node, ast.For | ast.While):
            yield from _ways_out(loop, node.body, tests, inner=True)
        elif isinstance(node, ast.With):
            yield from _ways_out(loop, node.body, tests, inner=inner)


def _decided(at: Where, way: _Exit, moment: Mapping[int, _Held], *, exchanged: bool) -> LocalExit | None:
    """The number of each rank's own that decides this way out."""
    tree = parsed(at.file)
    if tree is None or at.line is None or _asks_for_the_infinite(test for test, _ in way.tests):
        return None
    assigned = _assigned(way.loop, at.file)
    numbers = next(iter(moment.values())).numbers
    if _is_shut(way, numbers, {assignment.name for assignment in assigned}):
        return None
    names = {name for test, _ in way.tests for name in _names(test)}
    direct = _differing(names, moment, assigned, way, at.line)
    if direct is None and not exchanged:
        direct = _differing(_origins(way, names, assigned), moment, assigned, way, at.line)
    if direct is None:
        return None
    name, values = direct
    return LocalExit(Where(at.file, way.line, at.function), name, values)


@cache
def _assigned(loop: ast.For | ast.While, file: str) -> tuple[Assignment, ...]:
    return (*assignments(loop), *set_by_callees(loop, file))


def _asks_for_the_infinite(tests: Iterable[ast.expr]) -> bool:
    """Whether a condition asks whether a number is finite at all."""
    calls = (node for test in tests for node in ast.walk(test) if isinstance(node, ast.Call))
    return any(called_name(call) in _FINITE for call in calls)


def _names(node: ast.AST) -> Iterator[str]:
    """The variables that an expression reads, those that it gives to a function apart."""
    if isinstance(node, ast.Call):
        if called_name(node) in _TRANSPARENT:
            for part in (node.func, *node.args):
                yield from _names(part.value if isinstance(part, ast.Attribute) else part)
        return
    name = dotted(node) if isinstance(node, ast.expr) else None
    if name is not None:
        yield name
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child)


def _origins(way: _Exit, names: Iterable[str], assigned: Sequence[Assignment]) -> set[str]:
    """What the variables of a condition are made of inside the loop, and what decides whether they are."""
    origins = {name for test, _ in way.tests for name in _called(test)}
    waiting = {*names, *origins}
    for _ in range(_DEPTH):
        # A call of an object may change its attributes.
        changed = {*waiting, *map(_root, waiting)} - {"self"}
        made = [change for change in assigned if change.name in changed and not _is_of_clock(change)]
        parts = chain.from_iterable((change.value, *change.conditions) for change in made)
        waiting = {name for part in parts if part is not None for name in _names(part)} - origins
        origins |= waiting
    return origins


def _root(name: str) -> str:
    return name.partition(".")[0]


def _called(test: ast.expr) -> Iterator[str]:
    """Numbers that a condition gives to an object's call: ``stopper(loss)``."""
    for call in (node for node in ast.walk(test) if isinstance(node, ast.Call)):
        for argument in call.args:
            if name := dotted(argument):
                yield name


def _differing(
    names: Iterable[str],
    moment: Mapping[int, _Held],
    assigned: Sequence[Assignment],
    way: _Exit,
    line: int,
) -> tuple[str, dict[int, float]] | None:
    """A variable that the loop changes and that was not the same on all ranks when the condition read it."""
    for name in sorted(names):
        changes = [assignment for assignment in assigned if assignment.name == name]
        if not changes or not _is_as_read(changes, way, line) or any(map(_is_of_clock, changes)):
            continue
        values = {rank: held.numbers.get(name) for rank, held in moment.items()}
        known = {rank: value for rank, value in values.items() if value is not None}
        if len(known) == len(values) and _differ(known.values()):
            return name, known
    return None


def _is_as_read(changes: Iterable[Assignment], way: _Exit, line: int) -> bool:
    """Whether a variable still holds at this line, in the next turn, what the condition has read in the one before."""
    is_own_test = isinstance(way.loop, ast.While) and way.line == way.loop.lineno
    inner = [
        lines(node)
        for node in ast.walk(way.loop)
        if isinstance(node, ast.For | ast.While) and node is not way.loop
        if line in lines(node) and way.line not in lines(node)
    ]
    return not any(
        (change.line > way.line and not is_own_test) or any(change.line in turn for turn in inner)
        for change in changes
    )


def _is_of_clock(change: Assignment) -> bool:
    return change.value is not None and any(reads_clock(node) for node in ast.walk(change.value))


def _differ(values: Iterable[float]) -> bool:
    numbers = list(values)
    if not all(map(math.isfinite, numbers)):
        return False
    spread = max(numbers) - min(numbers)
    return spread > _SAME * max(map(abs, numbers))


def _is_shut(way: _Exit, numbers: Numbers, changed: set[str]) -> bool:
    """Whether a setting keeps this way out shut, or may: an early stop that is not asked for."""
    for test, holds in way.tests:
        conjunction = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and holds
        for part in test.values if isinstance(test, ast.BoolOp) and conjunction else [test]:
            is_setting = not any(name in changed or _root(name) in changed for name in _names(part))
            if is_setting and not _calls(part):
                truth = _truth(part, numbers)
                if truth is None or truth is not holds:
                    return True
    return any(_is_endless(test, numbers) for test, _ in way.tests)


def _calls(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _is_endless(test: ast.expr, numbers: Numbers) -> bool:
    """Whether it compares with no limit at all."""
    return any(numbers.get(name) in (math.inf, -math.inf) for name in _names(test) if "patience" in name)


def _truth(part: ast.expr, numbers: Numbers) -> bool | None:
    """What a condition of settings is; None where they are not known."""
    if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not):
        inner = _truth(part.operand, numbers)
        return None if inner is None else not inner
    if isinstance(part, ast.Compare) and len(part.ops) == 1:
        return _compared(part, numbers)
    name = dotted(part)
    if name is None or name not in numbers:
        # What is no number, and not None, is there.
        return True if isinstance(part, ast.Name) else None
    return bool(numbers[name])


def _compared(part: ast.Compare, numbers: Numbers) -> bool | None:
    operator, right = part.ops[0], part.comparators[0]
    if isinstance(right, ast.Constant) and right.value is None and isinstance(operator, ast.Is | ast.IsNot):
        name = dotted(part.left)
        return (name in numbers and numbers[name] is None) is isinstance(operator, ast.Is) if name else None
    if not isinstance(right, ast.Constant) or not isinstance(right.value, int | float):
        return None
    value = numbers.get(dotted(part.left) or "")
    if value is None:
        return None
    sign = (value > right.value) - (value < right.value)
    holds: dict[type[ast.cmpop], bool] = {
        ast.Gt: sign > 0,
        ast.GtE: sign >= 0,
        ast.Lt: sign < 0,
        ast.LtE: sign <= 0,
        ast.Eq: not sign,
        ast.NotEq: bool(sign),
    }
    return holds.get(type(operator))
