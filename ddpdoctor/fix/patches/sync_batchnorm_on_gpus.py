"""Converts BatchNorm to SyncBatchNorm only where there are GPUs, and before the wrap."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import argument, calls

cures = ("DD221",)
changes = ("loss",)


def apply(case: Case) -> str:
    """Put the conversion under ``torch.cuda.is_available()``, in front of the wrap."""
    source, wrap = case.wraps()[0]
    made = calls(source, "convert_sync_batchnorm")
    if not made or not wrap.args:
        raise CannotPatch("BatchNorm is converted in another file")
    convert, statement = made[0], source.statement(made[0])
    model = argument(convert, 0, "module")
    if model is None or not isinstance(statement, ast.Assign):
        raise CannotPatch("the conversion is given no model")
    cuda, function = f"{use(source, 'torch.cuda')}.is_available()", source.code(convert.func)
    target = source.code(statement.targets[0])
    if convert.lineno > wrap.lineno:
        at = source.statement(wrap)
        name = source.code(at.targets[0]) if isinstance(at, ast.Assign) else target
        inner = source.code(wrap.args[0])
        source.insert_before(at, f"{name} = {inner}\nif {cuda}:\n\t{name} = {function}({name})")
        source.replace(wrap.args[0], name)
        source.delete(statement)
    elif statement.value is convert and source.code(model) == target:
        source.indent_lines(statement, f"if {cuda}:")
    else:
        source.replace(convert, source.code(model))
        source.insert_after(statement, f"if {cuda}:\n\t{target} = {function}({target})")
    return "SyncBatchNorm on GPUs, before the wrap"
