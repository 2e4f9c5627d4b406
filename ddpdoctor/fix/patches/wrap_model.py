"""Wraps the model that the optimizer trains."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import with_group
from ddpdoctor.fix.names import callee, dotted, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import assignments, value_of
from ddpdoctor.fix.wrappers import DDP, TORCH_DDP, models_of, optimizers

cures = ("DD227",)


def apply(case: Case) -> str:
    """Wrap it before the optimizer is made; where a wrap depends on a GPU, in the other case, too."""
    source = case.source
    made = [call for call in optimizers(source) if any(map(dotted, models_of(source, call)))]
    if not made:
        raise CannotPatch("no optimizer over a model is made in this file")
    names = dict.fromkeys(source.code(node) for node in models_of(source, made[0]) if dotted(node))
    wrapper = use(source, TORCH_DDP)
    for name in names:
        condition = _condition(source, name)
        if condition is not None:
            margin = source.margin(condition)
            end = source.span(condition)[1]
            source.replace_span(
                end, end, f"\n{margin}else:\n{margin}{source.indent}{name} = {wrapper}({name})"
            )
        elif not _is_module(source, models_of(source, made[0])[0]):
            raise CannotPatch(f"it is not known what {name} is")
        else:
            source.insert_before(source.statement(made[0]), with_group(source, f"{name} = {wrapper}({name})"))
    return f"{', '.join(names)} wrapped in {DDP}"


def _condition(source: Source, name: str) -> Node | None:
    """The if without else in which the model is wrapped."""
    for node in source.all(cst.Assign):
        is_wrap = isinstance(node.value, cst.Call) and callee(source, node.value) == DDP
        if is_wrap and source.code(node.targets[0].target) == name:
            around = source.enclosing(node, cst.If, cst.FunctionDef)
            if isinstance(around, cst.If) and around.orelse is None:
                return around
    return None


def _is_module(source: Source, name: Node) -> bool:
    return value_of(source, name) is not None or any(
        dotted(target) == dotted(name) for target, _ in assignments(source, name)
    )
