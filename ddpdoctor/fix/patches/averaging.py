"""When and how gradients are averaged, scaled and clipped."""

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import DIST, argument, dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.program.files import LOOPS

_MODULE = "torch.distributed.nn.functional"
"""Imported by its name: torch.distributed does not import it."""
_GATHER = f"{DIST}.all_gather"
_WITHOUT = ("torch.no_grad", "torch.inference_mode", "torch.autograd.Function")


@patch("DD602")
def no_sync(case: Case) -> str:
    """``no_sync`` around the forward and the backward of all micro-batches but the last: no averages in vain."""
    source, backward = case.source, case.statement
    until = [*source.before(backward), backward]
    forwards = [other for other in until if source.calls_of_wrappers(other)]
    if not forwards:
        raise CannotPatch("the forward is not beside the backward")
    name = source.code(source.calls_of_wrappers(forwards[-1])[0].func)
    last, nothing = _is_last(source, backward), source.use("contextlib.nullcontext")
    alone = f"not {source.has_group()} or " if source.may_lack_group() else ""
    header = f"with {nothing}() if {alone}{last} else {name}.no_sync():"
    source.indent_lines(until[until.index(forwards[-1]) :], header)
    return f"{name}.no_sync() for all micro-batches but the last"


@patch("DD202")
def sync_last(case: Case) -> str:
    """``no_sync`` for those micro-batches only that no update follows."""
    source, statement = case.source, case.statement
    update = _update(source, source.behind(statement))
    if update is None:
        raise CannotPatch("the update is under no condition")
    test = source.code(update.test)
    if isinstance(statement, ast.Assign):
        source.replace(statement.value, test)
    else:
        contexts = [it.context_expr for it in getattr(statement, "items", ())]
        calls = [(it, call) for it in contexts for call in source.calls("no_sync", within=it)]
        if len(calls) != 1:
            raise CannotPatch("no_sync() is not one context of a with")
        context, call = calls[0]
        nothing = source.use("contextlib.nullcontext")
        source.replace(context, f"{nothing}() if {test} else {source.code(call)}")
    return f"no_sync() only where not {test}"


def _is_last(source: Source, backward: Node) -> str:
    """Whether a micro-batch is the last of its window: what the update is under, or the last round of the loop."""
    if update := _update(source, source.behind(backward)):
        return source.code(update.test)
    loop: Node = source.enclosing(backward, ast.For)
    name, count = _counted(source, loop) if loop is not None else ("", "")
    if not name:
        raise CannotPatch("the end of a window of micro-batches is not a condition")
    if name == "_":
        name = "micro_batch"
        source.replace(loop.target, name)
    return f"{name} + 1 == {count}"


def _update(source: Source, statements: list[Node]) -> Node | None:
    """The condition under which the optimizer takes its step."""
    conditions = (it for it in statements if isinstance(it, ast.If))
    return next((it for it in conditions if source.calls("step", within=it)), None)


def _counted(source: Source, loop: Node) -> tuple[str, str]:
    """The variable and the count of ``for i in range(n)``; empty of any other loop."""
    is_range = source.is_call_of(loop.iter, "builtins.range") and len(loop.iter.args) == 1
    is_counted = is_range and isinstance(loop.target, ast.Name)
    return (loop.target.id, source.code(loop.iter.args[0])) if is_counted else ("", "")


@patch("DD211", changes=("loss",))
def divide_sum(case: Case) -> str:
    """A division by the number of ranks behind the all_reduce."""
    source, statement = case.source, case.statement
    _, call = case.call_at(case.finding.where, "all_reduce", "all_reduce_coalesced")
    tensor, size = argument(call, 0, "tensor"), source.world_size(statement, plain=True)
    is_async = argument(call, None, "async_op") is not None
    if isinstance(statement, ast.Assign) and statement.value is call:
        name = source.code(statement.targets[0])
        source.insert_after(statement, f"{name} = {name} / {size}")
    elif isinstance(statement, ast.Expr) and statement.value is call and tensor and not is_async:
        name = source.code(tensor)
        source.insert_after(statement, f"{name} /= {size}")
    else:
        raise CannotPatch("the sum is not at hand behind the all_reduce")
    return f"{name} divided by the number of ranks"


@patch("DD217")
def unscale(case: Case) -> str:
    """``unscale_`` of the GradScaler behind the backward, or right before the clipping that the finding names."""
    source, statement = case.source, case.statement
    scope = source.scope(statement)
    steps = [call for call in source.calls("step", within=scope) if call.args]
    if not steps:
        raise CannotPatch("no step of a GradScaler is in this function")
    line = f"{source.code(steps[0].func.value)}.unscale_({source.code(steps[0].args[0])})"
    for call in source.calls("unscale_", within=scope):
        source.delete(source.statement(call))
    if source.statement(steps[0]) is statement:
        backwards = [source.statement(call) for call in source.calls("backward", within=scope)]
        inside = [backward for backward in backwards if backward in source.block(statement)]
        if not inside:
            raise CannotPatch("the backward is not beside the step")
        source.insert_after(inside[-1], line)
    else:
        source.insert_before(statement, line)
    return f"{line} before the clipping"


@patch("DD218")
def clip_before_step(case: Case) -> str:
    """Move the clipping behind the last backward, right before the optimizer takes its step."""
    source, statement = case.source, case.statement
    inside = source.enclosing(statement, *LOOPS) or source.scope(statement)
    steps = [call for call in source.calls("step", within=inside) if call.lineno > statement.lineno]
    if not steps:
        raise CannotPatch("no step of an optimizer follows the clipping")
    clipping = _whole(source, statement, steps[0])
    step = source.enclosing(steps[0], ast.stmt)
    if source.begins_line(step):
        source.insert_before(step, source.reindented(clipping, ""))
    elif isinstance(clipping, ast.Expr):  # the step is in the line of its condition
        begin = source.span(step)[0]
        source.replace_span(begin, begin, f"{source.code(clipping)}; ")
    source.delete(clipping)
    return "clipping right before the step"


def _whole(source: Source, statement: Node, step: Node) -> Node:
    """The clipping with the conditions that are for it alone: ``if args.max_norm:``."""
    for around in source.within_function(statement):
        is_condition = isinstance(around, ast.If) and around.body == [statement] and not around.orelse
        if not is_condition or around.lineno <= step.lineno <= around.end_lineno:
            break
        statement = around
    return statement


@patch("DD204", "DD212")
def gather_with_gradient(case: Case) -> str:
    """The ``all_gather`` that returns the parts and lets gradients pass."""
    source, call = case.source, _call(case)
    statement = source.statement(call)
    parts, tensor = argument(call, 0, "tensor_list"), argument(call, 1, "tensor")
    if parts is None or tensor is None or not dotted(parts) or not isinstance(statement, ast.Expr):
        raise CannotPatch("the list that all_gather fills has no name")
    name = source.code(parts)
    for other in source.block(statement):
        if isinstance(other, ast.Assign) and [source.code(target) for target in other.targets] == [name]:
            source.delete(other)
    source.import_name(_MODULE, "all_gather")
    source.replace(call, f"{name} = all_gather({source.code(tensor)})")
    return f"{_MODULE}.all_gather, which carries gradients"


def _call(case: Case) -> Node:
    """The call at the line; where that has none, the only one of the file that could pass gradients."""
    every = [call for call in case.source.calls(_GATHER) if not _is_without(case.source, call)]
    return every[0] if len(every) == 1 else case.call_at(case.finding.where, _GATHER)[1]


def _is_without(source: Source, call: Node) -> bool:
    """Whether no gradient is meant to pass here, or a function of its own passes it."""
    for around in source.above(call):
        items = (item.context_expr for item in getattr(around, "items", ()))
        parts = (*items, *getattr(around, "decorator_list", ()), *getattr(around, "bases", ()))
        if any(source.means(it.func if isinstance(it, ast.Call) else it, *_WITHOUT) for it in parts):
            return True
    return False
