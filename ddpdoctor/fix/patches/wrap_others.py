"""Wraps modules that an optimizer trains beside the wrapped model."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import with_group
from ddpdoctor.fix.names import DIST, dotted, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import value_of, world_size
from ddpdoctor.fix.wrappers import TORCH_DDP, assigned_to, is_wrapped, models_of, optimizers

cures = ("DD203",)


def apply(case: Case) -> str:
    """Wrap each; average the gradients of parameters of their own by hand."""
    source = case.source
    titles = [*_wrap(source), *_average(case, source)]
    if not titles:
        raise CannotPatch("what the optimizer trains beside the model has no name in this file")
    return ", ".join(titles)


def _wrap(source: Source) -> list[str]:
    titles = []
    for model in [model for made in optimizers(source) for model in models_of(source, made) if dotted(model)]:
        value = value_of(source, model)
        title = f"{source.code(model)} wrapped, too"
        if isinstance(value, cst.Call) and not is_wrapped(source, model) and title not in titles:
            source.replace(value, f"{use(source, TORCH_DDP)}({source.code(value)})")
            titles.append(title)
    return titles


def _average(case: Case, source: Source) -> list[str]:
    """Parameters that are none of a module: their gradients are averaged before the optimizer takes its step."""
    statement = _step(source) or case.statement
    names = [
        name.value
        for made in optimizers(source)
        for name in source.all(cst.Name, within=made)
        if _is_parameter(source, value_of(source, name))
    ]
    for name in dict.fromkeys(names):
        reduced = f"{use(source, f'{DIST}.all_reduce')}({name}.grad)"
        mean = f"{name}.grad /= {world_size(source, statement, plain=True)}"
        source.insert_before(statement, with_group(source, f"{reduced}\n{mean}"))
    return [f"the gradient of {name} averaged" for name in dict.fromkeys(names)]


def _step(source: Source) -> Node | None:
    """The first statement in which an optimizer of this file takes a step."""
    for made in optimizers(source):
        step = f"{source.code(assigned_to(source, made))}.step"
        for call in source.all(cst.Call):
            if dotted(call.func) == step:
                return source.statement(call)
    return None


def _is_parameter(source: Source, value: Node | None) -> bool:
    return isinstance(value, cst.Call) and (dotted(value.func) or "").endswith("Parameter")
