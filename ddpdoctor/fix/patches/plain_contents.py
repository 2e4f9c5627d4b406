"""Saves what ``torch.load`` reads with ``weights_only``: tensors and plain values, and no objects."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import calls, is_method, means, value_of
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.program.points import Entity

cures = ("DD304",)
_REFUSED = "Weights only load failed"
"""How torch.load begins to say it."""


def apply(case: Case) -> str:
    """The fields of the objects in the dictionary that is saved."""
    raised = [recording.raised for recording in case.trace.recorded.values() if recording.raised]
    if not any(_REFUSED in error.message for error in raised):
        raise CannotPatch("none is known for its exception")
    source = case.source
    contents = [value_of(source, call.args[0]) for call in calls(source, "torch.save") if call.args]
    values = [value for it in contents if isinstance(it, ast.Dict) for value in it.values]
    plain = {value: code for value in values if (code := _fields(source, value))}
    for value, code in plain.items():
        source.replace(value, code)
    if not plain:
        raise CannotPatch("it is not known which entry of the checkpoint is an object")
    return f"{', '.join(plain.values())} in the checkpoint"


def _fields(source: Source, value: Node) -> str | None:
    """The fields of argparse's options, or of a dataclass of the program; None of anything else."""
    made = value_of(source, value)
    if is_method(made, "parse_args") or (
        isinstance(made, ast.Call) and means(source, made.func, "argparse.Namespace")
    ):
        return f"vars({source.code(value)})"
    types = source.program.flow.types(source.point(value))
    classes: list[Node] = [it.node for it in types if isinstance(it, Entity)]
    decorators = [it.func if isinstance(it, ast.Call) else it for one in classes for it in one.decorator_list]
    if any(means(source, it, "dataclasses.dataclass") for it in decorators):
        return f"{use(source, 'dataclasses.asdict')}({source.code(value)})"
    return None
