"""Forwards of wrapped models with buffers, which rank 0 sends in each, that only some ranks call."""

import ast
from collections.abc import Iterator

from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Condition, Expression, Origin, Program
from ddpdoctor.program.files import lines
from ddpdoctor.program.index import Entity
from ddpdoctor.program.ways import Way
from ddpdoctor.unreached.lines import DDP, Decision, Sight, UnreachedLines
from ddpdoctor.unreached.ranks import ranks_where, who

_WITH_BUFFERS = ("torch.nn.BatchNorm", "torch.nn.SyncBatchNorm", "torchvision.models.")
"""How modules begin that have buffers."""


def forwards_of_some(unreached: UnreachedLines) -> Iterator[Sight]:
    """Forwards whose broadcast meets something else: a training forward of the other ranks has the same, and the rank
    that called one without gradients leaves it out in its own."""
    if not unreached.is_wrapped or not unreached.broadcasts_buffers:
        return
    forwards = [*_forwards(unreached)]
    for call in forwards:
        for way in unreached.ways(call):
            decision = unreached.decided_by([Origin.RANK], way.conditions)
            if decision is None or unreached.is_paired(call, decision, forwards):
                continue
            if not _trains_next(unreached, way, decision.condition):
                yield _sight(call, way, decision)
                break


def _sight(call: Expression, way: Way, decision: Decision) -> Sight:
    ranks = who(ranks_where(decision.condition))
    words = {"ranks": ranks, "what": f"{call.function_text}(...)", "test": decision.text}
    broadcast = Evidence("a forward through DistributedDataParallel broadcasts the buffers", where=call.where)
    leading = (Evidence("which leads to the call", where=it) for it in way.lines[1:3])
    return Sight(call.where, words, (broadcast, *leading, *decision.evidence))


def _forwards(unreached: UnreachedLines) -> Iterator[Expression]:
    wrapped = [it.argument(0, "module") for it in unreached.calls((DDP,))]
    if not any(it is not None and _has_buffers(it) for it in wrapped):
        return
    for file in unreached.program.files.values():
        for node in file.calls:
            if not isinstance(node.func, ast.Name | ast.Attribute):
                continue
            model = Expression(unreached.program, file, node.func)
            wrappers = [it for it in model.values if it is not None and DDP in it.called]
            if any(_has_buffers(given) for it in wrappers if (given := it.argument(0, "module"))):
                yield Expression(unreached.program, file, node)


def _has_buffers(module: Expression) -> bool:
    """Whether each model that it may be has buffers."""
    if any(name.startswith(_WITH_BUFFERS) for name in module.classes):
        return True
    of_classes = [it for it in module.program.flow.types(module.point) if isinstance(it, Entity)]
    return bool(of_classes) and all(_registers_any(module.program, it) for it in of_classes)


def _registers_any(program: Program, of_class: Entity) -> bool:
    waiting = [of_class]
    for each in waiting:  # which grows
        for node in (it for it in ast.walk(each.node) if isinstance(it, ast.Call)):
            call = Expression(program, each.file, node)
            if call.method == "register_buffer" or any(it.startswith(_WITH_BUFFERS) for it in call.classes):
                return True
            types = program.flow.types(call.point)
            waiting += [it for it in types if isinstance(it, Entity) and it not in waiting]
    return False


def _trains_next(unreached: UnreachedLines, way: Way, condition: Condition) -> bool:
    """Whether the ranks that leave a forward out come to a training forward next, as far as that is known."""
    statement = condition.statement
    if statement is None or (not condition.holds and isinstance(statement.body[-1], ast.Continue)):
        return True
    last = lines(statement)[-1]
    at = condition.at
    own = [(it.file, it.function) == (at.file, at.function) for it in way.lines]
    behind = own.index(True) + 1 if True in own else 1
    places = [Where(at.file, last, at.function)] if condition.holds else []
    places += [it for it, is_own in zip(way.lines[behind:], own[behind:], strict=True) if not is_own]
    for place in places:
        if (trains := _first_behind(unreached, place)) is not None:
            return trains
    return False


def _first_behind(unreached: UnreachedLines, place: Where) -> bool | None:
    """Whether what ranks meet at first behind a line, in its function, is a backward; None where there is none."""
    file = unreached.program.files[place.file]
    home = file.function_at(place.line)
    loop = next(reversed(unreached.program.loops.around(file, place.line or 0)), None)
    end = lines(loop)[-1] if loop else lines(*home.body)[-1]
    backwards = {it.node for it in unreached.backwards}
    meetings = {it.node for it in unreached.meetings}
    for call in file.calls:
        if (place.line or 0) < call.lineno <= end and file.function_at(call.lineno) is home:
            inside = {part for it in unreached.program.loops.called_in(file, call) for part in ast.walk(it)}
            if {call, *inside} & meetings:
                return bool({call, *inside} & backwards)
    return True if loop else None
