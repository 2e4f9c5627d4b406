"""Saves what ``torch.load`` reads with ``weights_only``: tensors and plain values, and no objects."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import callee, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import value_of

cures = ("DD304",)
_REFUSED = "Weights only load failed"
"""How torch.load begins to say it."""
_NAMESPACES = ("Namespace", "parse_args")


def apply(case: Case) -> str:
    """The fields of the objects in the dictionary that is saved."""
    raised = [recording.raised for recording in case.trace.recorded.values() if recording.raised]
    if not any(_REFUSED in error.message for error in raised):
        raise CannotPatch("none is known for its exception")
    source = case.source
    saved = [call for call in source.all(cst.Call) if callee(source, call) == "save" and call.args]
    contents = [value_of(source, call.args[0].value) or call.args[0].value for call in saved]
    entries = [entry for content in contents for entry in source.all(cst.DictElement, within=content)]
    plain = {entry: code for entry in entries if (code := _fields(source, entry.value))}
    for entry, code in plain.items():
        source.replace(entry.value, code)
    if not plain:
        raise CannotPatch("it is not known which entry of the checkpoint is an object")
    return f"{', '.join(plain.values())} in the checkpoint"


def _fields(source: Source, value: Node) -> str | None:
    """The fields of argparse's options, or of a dataclass of the file; None of anything else."""
    made = value_of(source, value) or value
    name = callee(source, made) if isinstance(made, cst.Call) else ""
    if name in _NAMESPACES:
        return f"vars({source.code(value)})"
    classes = (node for node in source.all(cst.ClassDef) if node.name.value == name)
    decorators = [source.code(decorator) for class_ in classes for decorator in class_.decorators]
    if any("dataclass" in decorator for decorator in decorators):
        return f"{use(source, 'dataclasses.asdict')}({source.code(value)})"
    return None
