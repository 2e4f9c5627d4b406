"""Writes a checkpoint beside the old one and renames it, so that a job that is killed leaves a complete one."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, calls, qualified, use_module
from ddpdoctor.fix.source import Node, Source


def apply(case: Case) -> str:
    """``torch.save`` to another name, and ``os.replace``, for each checkpoint of the file."""
    source = case.source
    saves = [call for call in calls(source, "save") if qualified(source, call.func) == "torch.save"]
    written = [
        (call, path) for call in saves if (path := argument(call, "f", 1)) and _is_path(source, call, path)
    ]
    if not written:
        raise CannotPatch("no torch.save in this file writes to a path")
    for call, path in written:
        code = source.code(path.value)
        part = f"{code[:-1]}.part{code[-1]}" if _is_text(path.value) else f'str({code}) + ".part"'
        source.replace(path.value, part)
        source.insert_after(source.statement(call), f"{use_module(source, 'os')}.replace({part}, {code})")
    return "checkpoints written beside the old one, and renamed"


def _is_text(node: Node) -> bool:
    return isinstance(node, (cst.SimpleString, cst.FormattedString))


def _is_path(source: Source, call: Node, path: Node) -> bool:
    """Whether a save is a statement by itself, to what does not name an open file."""
    statement = source.statement(call)
    alone = isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Expr)
    opened = source.enclosing(call, cst.With)
    is_file = opened is not None and any(
        item.asname is not None and source.code(item.asname.name) == source.code(path.value)
        for item in opened.items
    )
    return alone and not is_file
