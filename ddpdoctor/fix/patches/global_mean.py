"""Weighs the mean of each rank by its share of the elements of all ranks."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import with_group
from ddpdoctor.fix.names import DIST, argument, callee, dotted, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import call_sites, free, parameter_of, passed, value_of, world_size

cures = ("DD209",)
_TARGET = 1
"""The position of the targets in the losses of torch."""
_FUNCTIONS = (
    "cross_entropy",
    "nll_loss",
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "kl_div",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
)


def apply(case: Case) -> str:
    """Multiply the loss by the count of this rank, and divide it by the mean count."""
    source, statement = case.source, case.statement
    if quotient := _quotient(source, _value(source, statement)):
        return _divide_by_mean(source, quotient)
    body = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    loss = body.value if isinstance(body, (cst.Assign, cst.Return)) else None
    target = argument(loss, "target", _TARGET) if isinstance(loss, cst.Call) else None
    if loss is None or target is None or target.keyword is not None:
        raise CannotPatch("the line does not compute the loss from outputs and targets")
    count = _count(source, _options(source, loss), target.value)
    name = source.code(body.targets[0].target) if isinstance(body, cst.Assign) else "loss"
    tokens, total = free(source, statement, "count"), free(source, statement, "total")
    lines = with_group(
        source,
        f"{tokens} = {count}\n"
        f"{total} = {tokens}.clone()\n"
        f"{use(source, f'{DIST}.all_reduce')}({total})\n"
        f"{name} = {name} * {tokens} * {world_size(source, statement, plain=True)} / {total}",
    )
    if isinstance(body, cst.Return):
        source.insert_before(statement, f"{name} = {source.code(loss)}\n{lines}")
        source.replace(loss, name)
    else:
        source.insert_after(statement, lines)
    return "the mean over the elements of all ranks"


def _value(source: Source, statement: Node) -> Node | None:
    """What a statement assigns or returns; of ``loss.backward()``, what the loss was assigned."""
    body = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if isinstance(body, cst.Expr) and isinstance(body.value, cst.Call):
        called = body.value.func
        return value_of(source, called.value) if isinstance(called, cst.Attribute) else None
    return body.value if isinstance(body, (cst.Assign, cst.Return)) else None


def _quotient(source: Source, value: Node | None) -> Node | None:
    """The ``losses.sum() / mask.sum()`` that a value is, also as what a function of the file returns."""
    if isinstance(value, cst.Call):
        name = callee(source, value)
        functions = (node for node in source.all(cst.FunctionDef) if node.name.value == name)
        returns = [leave for function in functions for leave in source.all(cst.Return, within=function)]
        value = returns[0].value if len(returns) == 1 else None
    divides = isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Divide)
    return value if divides and value is not None and all(_sums(source, value)) else None


def _sums(source: Source, quotient: Node) -> tuple[Node | None, Node | None]:
    """The calls of ``sum()`` above and below."""
    above, below = (
        next((call for call in source.all(cst.Call, within=side) if _is_sum(call)), None)
        for side in (quotient.left, quotient.right)
    )
    return above, below


def _is_sum(call: Node) -> bool:
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "sum" and not call.args


def _divide_by_mean(source: Source, quotient: Node) -> str:
    """Divide a sum by the mean count of the ranks."""
    statement, (_, elements) = source.statement(quotient), _sums(source, quotient)
    count = free(source, statement, "count")
    together = with_group(source, f"{use(source, f'{DIST}.all_reduce')}({count})")
    source.insert_before(statement, f"{count} = {source.code(elements)}\n{together}")
    source.replace(elements, f"({count} / {world_size(source, statement)})")
    return "the mean over the elements of all ranks"


def _options(source: Source, loss: Node) -> Node:
    """The call that has the options of a loss: its own, or the one that made the module that it calls."""
    if (dotted(loss.func) or "").rpartition(".")[2].islower() and callee(source, loss) in _FUNCTIONS:
        return loss
    made = value_of(source, loss.func)
    given = parameter_of(source, loss.func)
    if made is None and given is not None:
        sites = [passed(source, call, *given) for call in call_sites(source, given[0])]
        values = [value_of(source, site) or site for site in sites if site is not None]
        made = values[0] if len(values) == 1 else None
    if not isinstance(made, cst.Call):
        raise CannotPatch(f"it is not known what {source.code(loss.func)} averages over")
    return made


def _count(source: Source, options: Node, target: Node) -> str:
    """The elements over which this rank averages."""
    weight = argument(options, "weight")
    if weight is not None and source.code(weight.value) != "None":
        raise CannotPatch("the mean is weighted by classes, and not over elements")
    code, ignored = source.code(target), argument(options, "ignore_index")
    if ignored is not None:
        return f"({code} != {source.code(ignored.value)}).sum()"
    device = f", device={code}.device" if "cuda" in source.text else ""
    return f"{use(source, 'torch.tensor')}(len({code}){device})"
