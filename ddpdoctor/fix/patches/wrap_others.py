"""Wraps modules that an optimizer trains beside the wrapped model."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import DIST, use
from ddpdoctor.fix.reading import (
    DDP,
    assigned_to,
    calls,
    dotted,
    is_wrapped,
    means,
    models_of,
    optimizers,
    value_of,
    world_size,
)
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.writing import with_group

cures = ("DD203",)


def apply(case: Case) -> str:
    """Wrap each; average the gradients of parameters of their own by hand."""
    source = case.source
    titles = [*_wrap(source), *_average(case, source)]
    if not titles:
        raise CannotPatch("what the optimizer trains beside the model has no name in this file")
    return ", ".join(titles)


def _wrap(source: Source) -> list[str]:
    models = [model for made in optimizers(source) for model in models_of(made) if dotted(model)]
    titles = []
    for name, model in {source.code(model): model for model in models}.items():
        value = value_of(source, model)
        if isinstance(value, ast.Call) and not is_wrapped(source, model):
            source.replace(value, f"{use(source, DDP)}({source.code(value)})")
            titles.append(f"{name} wrapped, too")
    return titles


def _average(case: Case, source: Source) -> list[str]:
    """Parameters that are none of a module: their gradients are averaged before the optimizer takes its step."""
    statement = _step(source) or case.statement
    read = [name for made in optimizers(source) for name in source.all(ast.Name, within=made)]
    names = dict.fromkeys(name.id for name in read if _is_parameter(source, value_of(source, name)))
    for name in names:
        reduced = f"{use(source, f'{DIST}.all_reduce')}({name}.grad)"
        mean = f"{name}.grad /= {world_size(source, statement, plain=True)}"
        source.insert_before(statement, with_group(source, f"{reduced}\n{mean}"))
    return [f"the gradient of {name} averaged" for name in names]


def _step(source: Source) -> Node | None:
    """The first statement in which an optimizer of this file takes a step."""
    owners = {assigned_to(source, made) for made in optimizers(source)}
    steps = [call for call in calls(source, "step") if source.code(call.func).rpartition(".")[0] in owners]
    return source.statement(steps[0]) if steps else None


def _is_parameter(source: Source, value: Node) -> bool:
    return isinstance(value, ast.Call) and means(
        source, value.func, "torch.nn.Parameter", "torch.nn.parameter.Parameter"
    )
