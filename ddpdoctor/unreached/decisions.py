"""Calls that every rank has to make, and updates, about which ranks decide differently."""

import ast
from collections.abc import Iterator

from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Condition, Expression, Origin
from ddpdoctor.program.files import LOOPS, File, Loop, lines
from ddpdoctor.program.ways import Way
from ddpdoctor.unreached.forwards import forwards_of_some
from ddpdoctor.unreached.lines import Decision, Sight, UnreachedLines
from ddpdoctor.unreached.ranks import is_shut, ranks_where, who

_BY = {
    Origin.CLOCK: "a clock of their own",
    Origin.RANDOM: "random numbers of their own",
    Origin.OWN_DATA: "a value of their own data",
}
_OWN = tuple(_BY)
_ENDS = (ast.Break, ast.Return, ast.Raise)


def called_by_some(unreached: UnreachedLines) -> Iterator[Sight]:
    """Collectives, and forwards and backwards of wrapped models, that some ranks come to."""
    yield from forwards_of_some(unreached)
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
            if way.tried is not None and _meets(unreached, call.file, way.tried):
                continue
            test = decision.condition.test.node
            if test in told:  # one cause, one finding
                continue
            told.add(test)
            at = _line_under(way, decision.condition)
            some = who(ranks_where(decision.condition)) if by_rank else who(None)
            first = [it.test.node for it in way.conditions].index(test)
            inner = [it for it in way.conditions[:first] if Origin.UNKNOWN in it.test.origins.kinds]
            leads = [Evidence("which leads to the call", where=way.lines[0])] if at != way.lines[0] else []
            leads += [Evidence(f"only where {it.test.text} is {it.holds}", where=it.at) for it in inner]
            words = {"ranks": some, "what": call.function_text, "test": decision.text}
            yield Sight(at, words, (*leads, *decision.evidence), certain=not inner)


def _meets(unreached: UnreachedLines, file: File, tried: ast.AST) -> bool:
    """Whether ranks that raise nothing may come to a call that one in an ``except`` meets."""
    blocks = [*tried.body, *tried.orelse]  # type: ignore[attr-defined]
    entered = (of for it in blocks for of in unreached.program.loops.called_in(file, it))
    inside = {part for it in (*blocks, *entered) for part in ast.walk(it)}
    return any(it.node in inside for it in unreached.meetings)


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
            at = _line_under(way, decision.condition)
            yield Sight(at, {"test": decision.text}, decision.evidence)


def _also_around_backward(unreached: UnreachedLines, decision: Decision) -> bool:
    ways = (way for call in unreached.backwards for way in unreached.undecided(call))
    return any(it.test.node is decision.condition.test.node for way in ways for it in way.conditions)


def _decision(unreached: UnreachedLines, call: Expression, way: Way) -> Decision | None:
    """The condition by which some ranks do not come to a call, and do not come to another one that it meets."""
    for condition in way.conditions:
        decision = None if unreached.ends_job(condition) else unreached.decision(condition)
        if decision is not None:
            return None if unreached.is_paired(call, decision) else decision
    return None


def _leaves(condition: Condition, how: tuple[type, ...] = (ast.Break, ast.Continue)) -> bool:
    """Whether a condition ends a loop, or a turn of it, ahead of a call."""
    statement = condition.statement
    if isinstance(statement, ast.If):
        return isinstance(statement.body[-1], how)
    return statement is not None


def _line_under(way: Way, condition: Condition) -> Where:
    """The line of a way that a condition is in front of."""
    here = (it for it in way.lines if (it.file, it.function) == (condition.at.file, condition.at.function))
    return next(here, way.lines[0])


def _own(decision: Decision, what: str) -> Sight:
    words = {"what": what, "by": _BY[decision.source.origin]}
    return Sight(decision.condition.at, words, decision.evidence)
