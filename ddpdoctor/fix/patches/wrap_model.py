"""Wraps the model that the optimizer trains."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import DDP, calls, dotted, models_of, optimizers, value_of
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.writing import with_group

cures = ("DD227",)


def apply(case: Case) -> str:
    """Wrap it before the optimizer is made; where a wrap depends on a GPU, in the other case, too."""
    source = case.source
    made = [call for call in optimizers(source) if any(map(dotted, models_of(call)))]
    if not made:
        raise CannotPatch("no optimizer over a model is made in this file")
    models = {source.code(node): node for node in models_of(made[0]) if dotted(node)}
    wrapper = use(source, DDP)
    for name, model in models.items():
        condition = _condition(source, name)
        if condition is not None:
            margin, end = source.margin(condition), source.span(condition)[1]
            lines = f"\n{margin}else:\n{margin}{source.indent}{name} = {wrapper}({name})"
            source.replace_span(end, end, lines)
        elif value_of(source, model) is model and not source.program.flow.copies(source.point(model)):
            raise CannotPatch(f"it is not known what {name} is")
        else:
            source.insert_before(source.statement(made[0]), with_group(source, f"{name} = {wrapper}({name})"))
    return f"{', '.join(models)} wrapped in DistributedDataParallel"


def _condition(source: Source, name: str) -> Node | None:
    """The if without else in which the model is wrapped."""
    for call in calls(source, DDP):
        wrap, around = source.statement(call), source.file.parents[source.statement(call)]
        is_of_model = isinstance(wrap, ast.Assign) and source.code(wrap.targets[0]) == name
        if is_of_model and isinstance(around, ast.If) and not around.orelse:
            return around
    return None
