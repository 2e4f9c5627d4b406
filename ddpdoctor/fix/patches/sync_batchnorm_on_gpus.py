"""Converts BatchNorm to SyncBatchNorm only where there are GPUs, and before the wrap."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, calls, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.wrappers import wraps

cures = ("DD221",)


def apply(case: Case) -> str:
    """Put the conversion under ``torch.cuda.is_available()``, in front of the wrap."""
    source, wrap = wraps(case)[0]
    made = calls(source, "convert_sync_batchnorm")
    if not made or not wrap.args:
        raise CannotPatch("BatchNorm is converted in another file")
    cuda = f"{use(source, 'torch.cuda')}.is_available()"
    convert = made[0]
    statement, model = source.statement(convert), argument(convert, "module", 0)
    if model is None:
        raise CannotPatch("the conversion is given no model")
    name = source.code(model.value)
    if source.line(convert) > source.line(wrap):
        _before(source, wrap, convert, statement, cuda)
    elif source.code(statement) == f"{name} = {source.code(convert)}":
        source.indent_lines(statement, f"if {cuda}:")
    else:
        target = source.code(statement).partition(" = ")[0]
        source.replace(convert, name)
        source.insert_after(statement, f"if {cuda}:\n\t{target} = {source.code(convert.func)}({target})")
    return "SyncBatchNorm on GPUs, before the wrap"


def _before(source: Source, wrap: Node, convert: Node, statement: Node, cuda: str) -> None:
    inner, at = source.code(wrap.args[0].value), source.statement(wrap)
    name = source.code(at).partition(" = ")[0]
    source.insert_before(at, f"{name} = {inner}\nif {cuda}:\n\t{name} = {source.code(convert.func)}({name})")
    source.replace(wrap.args[0].value, name)
    source.delete(statement)
