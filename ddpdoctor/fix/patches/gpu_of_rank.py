"""Lets each rank choose the GPU of its local rank, before anything uses one."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use, use_module
from ddpdoctor.fix.reading import DDP, INIT, LOCAL_RANK, argument, calls, dotted, may_lack_group, value_of
from ddpdoctor.fix.source import Node, Source

cures = ("DD802", "DD803")
after = ("visible_devices",)
_SET = "torch.cuda.set_device"


def apply(case: Case) -> str:
    """``torch.cuda.set_device`` by LOCAL_RANK."""
    source, statement = case.source, case.statement
    environ = f"{use_module(source, 'os')}.environ"
    read = f'{environ}.get("LOCAL_RANK", 0)' if may_lack_group(source) else f'{environ}["LOCAL_RANK"]'
    number = f"int({read})"
    if chosen := case.calls(_SET):
        value = value_of(source, chosen[0].args[0])
        is_text = isinstance(value, ast.JoinedStr) or isinstance(getattr(value, "value", None), str)
        if _is_of_local_rank(source, value):
            raise CannotPatch("it is the GPU of the local rank already")
        source.replace(value, f"f'cuda:{{{number}}}'" if is_text else number)
        return "the GPU of the local rank"
    elsewhere = [call for call in calls(source, _SET) if source.scope(call) is source.scope(statement)]
    if not elsewhere:
        inits = calls(source, INIT)
        if not inits:
            raise CannotPatch("init_process_group is called in another file")
        source.insert_before(source.statement(inits[0]), f"{use(source, 'torch.cuda')}.set_device({number})")
        _leave_gpu_0(source)
        return "set_device by LOCAL_RANK"
    call = elsewhere[0]
    made = source.statement(value_of(source, call.args[0])) if dotted(call.args[0]) else None
    for moved in (made, source.statement(call)):
        if isinstance(moved, (ast.Assign, ast.Expr)) and moved.lineno > statement.lineno:
            source.move_before(moved, statement)
    return "set_device before GPUs are used"


def _is_of_local_rank(source: Source, value: Node) -> bool:
    parts = [part.value for part in getattr(value, "values", ()) if isinstance(part, ast.FormattedValue)]
    origins = [source.expression(part).origins for part in parts]
    return any(it.name in LOCAL_RANK for origin in origins for it in origin.sources)


def _leave_gpu_0(source: Source) -> None:
    """``cuda`` in place of ``cuda:0``, and the current device in place of 0 in device_ids."""
    for string in source.all(ast.Constant):
        if string.value == "cuda:0":
            source.replace(string, source.code(string).replace("cuda:0", "cuda"))
    for call in calls(source, DDP):
        given = argument(call, 1, "device_ids")
        if given is not None and source.code(given) == "[0]":
            source.replace(given, f"[{use(source, 'torch.cuda')}.current_device()]")
