"""Gives a loss of zero the graph of the model's outputs, so that every rank takes part in the all-reduce."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case

_ZERO = re.compile(
    r"(?:\w+\.)*(?:tensor\(0(?:\.0?)?|zeros\(\(\)|zeros\(1?)(?:, [^)]*)?, requires_grad=True\)$"
)


def apply(case: Case) -> str:
    """``outputs.sum() * 0.0`` in place of a new zero."""
    source = case.source
    for call in source.all(cst.Call):
        function = source.enclosing(call, cst.FunctionDef)
        parameters = function.params.params if function is not None else ()
        if _ZERO.match(source.code(call)) and parameters:
            source.replace(call, f"{parameters[0].name.value}.sum() * 0.0")
            return "a zero that has the graph of the outputs"
    raise CannotPatch("no loss of zero without a graph is made in this file")
