"""Numbers that ranks decide by, decisions that they have to take alike, and means over unequal counts."""

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import DIST, argument, dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.program import Origin
from ddpdoctor.program.files import FUNCTIONS, LOOPS
from ddpdoctor.program.index import Entity


@patch("DD208", "DD502")
def reduced_metric(case: Case) -> str:
    """The mean of a number over all ranks, before the line that uses it."""
    source, statement = case.source, case.statement
    plateau = [call for call in case.calls("step") if call.args]
    if plateau:
        value = plateau[0].args[0]
        metric = source.free(statement, "metric")
        source.insert_before(statement, source.mean(statement, source.code(value), metric))
        source.replace(value, metric)
        return "the mean over ranks for the scheduler"
    chooses = isinstance(statement, ast.If)
    guard = source.rank_guard(statement.body[0] if chooses else statement)
    if guard is None and not chooses and not _calls_helper(source, statement):
        raise CannotPatch("the number is used under no condition by rank")
    used = metrics(source, statement.test)[:1] if chooses else metrics(source, statement)
    names = (metrics(source, guard.test)[:1] if guard else []) or used or metrics(source, guard or statement)
    guard = guard or statement
    if not names:
        raise CannotPatch("the metric is not a variable")
    if (quotient := _quotient(source, guard, names)) is not None:
        names = [source.code(quotient.left), source.code(quotient.right)]
    at = source.statement(quotient) if quotient is not None else guard
    source.insert_before(at, source.means_of(at, names))
    return f"the mean of {', '.join(names)} over ranks"


def _calls_helper(source: Source, statement: Node) -> bool:
    """Whether a function of the script prints or keeps the number: then the condition by rank stands in there."""
    points = map(source.point, source.all(ast.Call, within=statement))
    return any(isinstance(it, Entity) for point in points for it in source.program.flow.called(point))


def _quotient(source: Source, guard: Node, names: list[str]) -> Node | None:
    """The ``correct / total`` that the number is: ranks may have different counts, so that these are reduced."""
    reads = [it for it in source.names_in(guard) if [source.code(it)] == names]
    value = source.assigned(reads[0]) if reads else None
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return None
    sides, all_come = (value.left, value.right), source.rank_guard(value) is None
    return value if all_come and all(_is_sum(source, side) for side in sides) else None


def _is_sum(source: Source, side: Node) -> bool:
    """Whether it is a plain number that the function adds up."""
    within, name = source.scope(side), dotted(side)
    sums = any(dotted(node.target) == name for node in source.all(ast.AugAssign, within=within))
    is_tensor = any(dotted(node.value) == name for node in source.all(ast.Attribute, within=within))
    return sums and not is_tensor


def metrics(source: Source, within: Node) -> list[str]:
    """The numbers that each rank computes of its own data, of a condition or of what is printed: variables, and
    entries of dictionaries; not what the statement itself keeps for later, as the best so far."""
    around = source.statement(within)
    kept = {dotted(target) for node in source.all(ast.Assign, within=around) for target in node.targets}
    reads = [it for it in source.names_in(within) if dotted(it) not in kept and _is_variable(source, it)]
    own = [it for it in reads if _is_of_own_data(source, it)]
    own = own or [it for it in reads if Origin.UNKNOWN in source.expression(it).origins.kinds]
    return list(dict.fromkeys(number for name in own for number in _numbers(source, name)))


def _is_variable(source: Source, name: Node) -> bool:
    """Whether it is read as a value, and is no object whose attributes or methods are."""
    parent = source.file.parents[name]
    is_called = isinstance(parent, ast.Call) and parent.func is name
    is_owner = isinstance(name, ast.Attribute) or isinstance(parent, ast.Attribute)
    return not is_called and not is_owner


def _is_of_own_data(source: Source, value: Node) -> bool:
    """Whether it is computed of a DataLoader's batches, or of the part that a rank takes of what all have."""
    value_of = source.expression(value)
    return Origin.OWN_DATA in value_of.origins.kinds or any(
        isinstance(part.node, ast.Subscript) and Origin.RANK in part.inner(part.node.slice).origins.kinds
        for part in value_of.made_of()
    )


def _numbers(source: Source, name: Node) -> list[str]:
    """``loss``, ``metrics["loss"]``, or each entry of ``metrics`` that a rank computed of its own data."""
    made = source.value_of(name)
    if not isinstance(made, ast.Dict):
        return [source.code(name)]
    entries = [(key, value) for key, value in zip(made.keys, made.values, strict=True) if key is not None]
    own = [key for key, value in entries if _is_of_own_data(source, value)]
    return [f"{source.code(name)}[{source.code(key)}]" for key in own]


@patch("DD225", "DD308", after=("out_of_rank_guard",))
def agree(case: Case) -> str:
    """Reduce the condition at the line, or the one before it by which ranks leave.

    Where only some ranks come to it, as in an else of ``if loss < best``, the number that decides that is reduced.
    """
    source = case.source
    if loops := [node for node in source.on_line(case.line, ast.While) if node.lineno == case.line]:
        return _reduce_count(source, loops[0])
    condition = _condition(source, case)
    loop = source.enclosing(condition, *LOOPS, *FUNCTIONS)
    reduces = source.calls(f"{DIST}.reduce", within=loop or source.tree)
    if reduced := [call for call in reduces if _is_to_one(source, call, condition)]:
        for call in reduced:
            source.replace(call.func, source.use(f"{DIST}.all_reduce"))
            source.remove_arguments(call, [argument(call, 1, "dst")])
        return "the sum on every rank, by all_reduce"
    if (outer := source.differs_around(condition)) is not None:
        numbers = metrics(source, outer.test)[:1]
        if not numbers:
            raise CannotPatch(f"the ranks differ at line {outer.lineno} already")
        source.insert_before(outer, source.means_of(outer, numbers))
        return f"the mean of {numbers[0]} over ranks"
    source.plain_if(condition)
    name = source.free(condition, "decision")
    source.insert_before(condition, source.any_rank(condition, source.code(condition.test), name))
    source.replace(condition.test, f"{name}.item()")
    return "the same decision on every rank"


def _reduce_count(source: Source, loop: Node) -> str:
    """Count alike on all ranks what a ``while`` ends by, at the end of its body."""
    if source.all(ast.Continue, within=loop) or not source.begins_line(loop.body[0]):
        raise CannotPatch(f"not every round of the loop at line {loop.lineno} comes to its end")
    names = {dotted(name) for name in source.names_in(loop.test)}
    counted = [
        source.code(node.target)
        for node in source.all(ast.AugAssign, within=loop.body)
        if dotted(node.target) in names and not isinstance(node.value, ast.Constant)
    ]
    if not counted:
        raise CannotPatch(f"the loop at line {loop.lineno} counts nothing that it ends by")
    source.insert_after(loop.body[-1], source.means_of(loop.body[-1], dict.fromkeys(counted)))
    return f"the mean of {', '.join(dict.fromkeys(counted))} over ranks"


def _condition(source: Source, case: Case) -> Node:
    at_line = [node for node in source.on_line(case.line, ast.If) if node.lineno == case.line]
    around = source.file.parents.get(case.statement)
    is_in_one = isinstance(around, ast.If) and not hasattr(case.statement, "body")
    nearest = at_line or ([around] if is_in_one else [])
    before = [node for node in source.before(case.statement) if isinstance(node, ast.If)]
    for node in (*nearest, *reversed(before)):
        if source.all(ast.Break, ast.Continue, ast.Return, within=node):
            return node
    raise CannotPatch("no condition by which a rank leaves is beside it")


def _is_to_one(source: Source, call: Node, condition: Node) -> bool:
    """Whether it gives a sum to one rank only, by which the condition or one around it decides."""
    tensor = dotted(call.args[0]) if call.args else None
    if tensor is None or argument(call, 1, "dst") is None or call.lineno > condition.lineno:
        return False
    tests = [node.test for node in (condition, *source.above(condition)) if isinstance(node, ast.If)]
    names = [name for test in tests for name in source.all(ast.Name, within=test)]
    values = [value for name in names if (value := source.assigned(name)) is not None]
    names += [name for value in values for name in source.all(ast.Name, within=value)]
    return tensor.partition(".")[0] in {name.id for name in names}
