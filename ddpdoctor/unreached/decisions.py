"""Calls that every rank has to make, and updates, about which ranks decide differently; and windows of micro-batches
after whose last backward the optimizer steps though that backward ran under no_sync()."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Condition, Expression, Origin
from ddpdoctor.program.files import LOOPS, File, Loop, dotted, lines, name_called
from ddpdoctor.program.ways import Way
from ddpdoctor.unreached.lines import BECAUSE, DDP, Decision, Sight, UnreachedLines
from ddpdoctor.unreached.ranks import is_shut, ranks_where, who

_BY = {
    Origin.CLOCK: "a clock of their own",
    Origin.RANDOM: "random numbers of their own",
    Origin.OWN_DATA: "a value of their own data",
}
_OWN = tuple(_BY)
_ENDS = (ast.Break, ast.Return, ast.Raise)


def called_by_some(unreached: UnreachedLines) -> Iterator[Sight]:
    """Collectives, and backwards of wrapped models, that some ranks come to."""
    told = set[ast.expr]()
    for call in unreached.meetings:
        of_model = call in unreached.backwards
        for way in unreached.undecided(call):
            decision = _decision(unreached, call, way)
            if decision is None or (of_model and not unreached.is_joint(call, way)):
                continue
            by_rank = decision.source.origin is Origin.RANK
            if not by_rank and (of_model or _leaves(decision.condition)):
                continue
            test = decision.condition.test.node
            if test in told:  # one cause, one finding
                continue
            told.add(test)
            at = _line_under(way, decision.condition)
            some = who(ranks_where(decision.condition)) if by_rank else who(None)
            evidence = (*_leading(way, at), *decision.evidence(BECAUSE[decision.source.origin]))
            yield Sight(at, {"ranks": some, "what": call.function_text, "test": decision.text}, evidence)


def left_by_own_values(unreached: UnreachedLines) -> Iterator[Sight]:
    """Loops of joint training that end, and backwards that are left out, by a value of each rank's own."""
    for call in unreached.backwards:
        for way in unreached.undecided(call):
            decision = _decision(unreached, call, way)
            if decision is None or decision.source.origin not in _OWN or not unreached.is_joint(call, way):
                continue
            if not (decision.part.asks_if_finite and _leaves(decision.condition, _ENDS)):
                yield _own(decision, "leave out a backward")
    for file in unreached.program.files.values():
        for loop in file.scopes:
            if isinstance(loop, LOOPS) and _is_joint(unreached, file, loop):
                yield from _exits(unreached, file, loop)


def _exits(unreached: UnreachedLines, file: File, loop: Loop) -> Iterator[Sight]:
    for way in unreached.program.loops.ways_out(file, loop):
        if way.statement is not loop and not unreached.is_unreached(file.where(way.statement)):
            continue
        conditions = way.conditions
        of_process = unreached.program.loops.ends_process(file, way.statement)
        if of_process or any(it.test.asks_if_finite or is_shut(it) for it in conditions):
            continue
        if decision := unreached.decided_by(_OWN, conditions):
            yield _own(decision, "leave a loop")


def _is_joint(unreached: UnreachedLines, file: File, loop: ast.AST) -> bool:
    """Whether ranks meet in each turn of a loop."""
    inside = {file.where(it.node).line for it in unreached.meetings if it.file is file}
    if any(line in lines(loop) for line in inside):
        return True
    called = unreached.program.loops.called_in(file, loop)
    return any(it.file.scopes[it.node] in called for it in unreached.meetings)


def steps_left_out(unreached: UnreachedLines) -> Iterator[Sight]:
    """Steps of optimizers that some ranks leave out, after a backward that all ran."""
    for call in unreached.optimizer_steps if unreached.is_wrapped else ():
        for way in unreached.undecided(call):
            decision = _decision(unreached, call, way)
            if decision is None or _also_around_backward(unreached, decision) or unreached.sends_weights:
                continue
            yield Sight(
                _line_under(way, decision.condition),
                {"test": decision.text},
                decision.evidence(BECAUSE[decision.source.origin]),
            )


def _also_around_backward(unreached: UnreachedLines, decision: Decision) -> bool:
    conditions = (
        it for call in unreached.backwards for way in unreached.undecided(call) for it in way.conditions
    )
    return any(it.test.node is decision.condition.test.node for it in conditions)


def _decision(unreached: UnreachedLines, call: Expression, way: Way) -> Decision | None:
    """The condition by which some ranks do not come to a call, and do not come to another one that it meets."""
    for condition in way.conditions:
        decision = None if _ends_job(unreached, condition) else unreached.decision(condition)
        if decision is not None:
            return None if unreached.is_paired(call, decision) else decision
    return None


def _leaves(condition: Condition, how: tuple[type, ...] = (ast.Break, ast.Continue)) -> bool:
    """Whether a condition ends a loop, or a turn of it, ahead of a call."""
    statement = condition.statement
    if isinstance(statement, ast.If):
        return isinstance(statement.body[-1], how)
    return statement is not None


def _ends_job(unreached: UnreachedLines, condition: Condition) -> bool:
    """Whether a rank that does not go on raises, or ends its process: then the launcher ends the others."""
    last = condition.otherwise[-1:] if not condition.holds else []
    ends_process = unreached.program.loops.ends_process
    return any(isinstance(it, ast.Raise) or ends_process(condition.test.file, it) for it in last)


def _line_under(way: Way, condition: Condition) -> Where:
    """The line of a way that a condition is in front of."""
    here = (it for it in way.lines if (it.file, it.function) == (condition.at.file, condition.at.function))
    return next(here, way.lines[0])


def _leading(way: Way, at: Where) -> Iterable[Evidence]:
    if at != way.lines[0]:
        yield Evidence("which leads to the call", where=way.lines[0])


def _own(decision: Decision, what: str) -> Sight:
    origin = decision.source.origin
    return Sight(decision.condition.at, {"what": what, "by": _BY[origin]}, decision.evidence(BECAUSE[origin]))


_WINDOW = 4
"""Micro-batches of the window that is tried."""
_TURNS = range(2 * _WINDOW)


def steps_without_sync(unreached: UnreachedLines) -> Iterator[Sight]:
    """The loops in which the last backward of a window is left out of the averaging."""
    program = unreached.program
    for file in program.files.values():
        for call in file.calls:
            if name_called(call) == "no_sync" and unreached.ways(Expression(program, file, call)):
                for loop in program.loops.around(file, call.lineno)[-1:]:
                    no_sync = Expression(program, file, call)
                    yield from _of_loop(unreached, file, loop, no_sync, _uses(no_sync, loop))
    flags = [it for it in program.assigned() if it[0].is_attribute("require_backward_grad_sync")]
    for flag, value in flags:
        for loop in program.loops.around(flag.file, flag.node.lineno)[-1:]:
            alone = sum(it.file is flag.file and it.where.line in lines(loop) for it, _ in flags) == 1
            if alone and unreached.is_unreached(flag.where) and not isinstance(value.node, ast.Constant):
                off = Condition(value, False, flag.where)
                yield from _of_loop(unreached, flag.file, loop, flag, [*_within(unreached, loop, flag), off])


def _of_loop(
    unreached: UnreachedLines,
    file: File,
    loop: ast.AST,
    no_sync: Expression,
    uses: list[Condition] | None,
) -> Iterator[Sight]:
    """Args: uses: what has to be so, in the loop, for a backward not to reduce."""
    index = _index(loop)
    home = file.scopes[loop]
    steps = [it for it in unreached.optimizer_steps if it.file.scopes[it.node] is home]
    if not index or len(steps) != 1 or uses is None or _averages(unreached, file, loop):
        return
    step = steps[0]
    behind = (step.where.line or 0) > lines(loop)[-1]
    if not behind and step.where.line not in lines(loop):
        return
    for number in [_WINDOW - 1] if behind else _TURNS:
        values = _values(unreached, file, loop, index, number)
        stepping = behind or _truth(_within(unreached, loop, step), values)
        if stepping and _truth(uses, values):
            words = {"number": str(number % _WINDOW + 1), "size": str(_WINDOW)}
            yield Sight(no_sync.where, words, (Evidence("steps after it", where=step.where),))
            return


def _averages(unreached: UnreachedLines, file: File, loop: ast.AST) -> bool:
    """Whether a loop, or its function, has a collective that may average by hand."""
    called = unreached.program.loops.called_in(file, loop)
    scopes = {it.file.scopes[it.node] for it in unreached.collectives if DDP not in it.called}
    return file.scopes[loop] in scopes or not called.isdisjoint(scopes)


def _index(loop: ast.AST) -> str:
    """The variable that counts the turns of a loop from 0."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or len(loop.iter.args) != 1:
        return ""
    name, target = name_called(loop.iter), loop.target
    if name == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[0]
    elif name != "range":
        return ""
    return target.id if isinstance(target, ast.Name) else ""


def _within(unreached: UnreachedLines, loop: ast.AST, call: Expression) -> list[Condition]:
    return [it for it in unreached.program.conditions(call.where) if it.at.line in lines(loop)]


def _uses(no_sync: Expression, loop: ast.AST) -> list[Condition] | None:
    """What has to be so, in its loop, for a backward to run under it; None where it is not written in a ``with``, or in
    a variable that one has."""
    file, node, found = no_sync.file, no_sync.node, list[Condition]()
    for around in file.above(node):
        if isinstance(around, ast.IfExp):
            if node not in (around.body, around.orelse):
                return None
            found.append(Condition(no_sync.inner(around.test), node is around.body, file.where(around)))
        elif isinstance(around, ast.With | ast.withitem | ast.Assign):
            break
        else:
            return None
        node = around
    conditions = no_sync.program.conditions(no_sync.where)
    return [*(it for it in conditions if it.at.line in lines(loop)), *found]


def _values(
    unreached: UnreachedLines, file: File, loop: ast.AST, index: str, number: int
) -> Mapping[str, object]:
    """What variables of a loop are in one turn: the index, whole numbers that do not change, and what follows."""
    names = {dotted(it) for it in file.scopes if isinstance(it, ast.Name | ast.Attribute)} - {None}
    set_inside: dict[str, list[ast.Assign]] = {}
    for it in ast.walk(loop):
        if isinstance(it, ast.Assign):
            for target in it.targets:
                set_inside.setdefault(dotted(target) or "", []).append(it)
    values: dict[str, object] = {str(it): _WINDOW for it in names if it not in set_inside}
    values[index] = number
    for name, assigned in set_inside.items():
        value = (
            Expression(unreached.program, file, assigned[0].value).truth(values)
            if len(assigned) == 1
            else None
        )
        if (
            name
            and value is not None
            and isinstance(assigned[0].value, ast.Compare | ast.BoolOp | ast.UnaryOp)
        ):
            values[name] = value
    return values


def _truth(conditions: list[Condition], values: Mapping[str, object]) -> bool | None:
    """Whether all of these are so; None where that does not follow."""
    found = [(it.test.truth(values), it.holds) for it in conditions]
    return None if any(truth is None for truth, _ in found) else all(truth is holds for truth, holds in found)
