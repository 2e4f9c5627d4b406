"""Lets each rank choose the GPU of its local rank, before anything uses one."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, calls, dotted, use, use_module
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import may_lack_group, value_of
from ddpdoctor.fix.wrappers import DDP

cures = ("DD802", "DD803")
after = ("visible_devices",)


def apply(case: Case) -> str:
    """``torch.cuda.set_device`` by LOCAL_RANK."""
    source, statement = case.source, case.statement
    environ = f"{use_module(source, 'os')}.environ"
    read = f'{environ}.get("LOCAL_RANK", 0)' if may_lack_group(source) else f'{environ}["LOCAL_RANK"]'
    local_rank = f"int({read})"
    chosen = case.calls("set_device")
    if chosen:
        given = chosen[0].args[0].value
        value = value_of(source, given) or given
        is_text = isinstance(value, (cst.SimpleString, cst.FormattedString))
        if is_text and "local_rank" in source.code(value):
            raise CannotPatch("it is the GPU of the local rank already")
        source.replace(value, f"f'cuda:{{{local_rank}}}'" if is_text else local_rank)
        return "the GPU of the local rank"
    elsewhere = [
        call for call in calls(source, "set_device") if source.scope(call) is source.scope(statement)
    ]
    if not elsewhere:
        inits = calls(source, "init_process_group")
        if not inits:
            raise CannotPatch("init_process_group is called in another file")
        source.insert_before(
            source.statement(inits[0]), f"{use(source, 'torch.cuda')}.set_device({local_rank})"
        )
        _leave_gpu_0(source)
        return "set_device by LOCAL_RANK"
    call = elsewhere[0]
    for moved in (_assigned(source, call), source.statement(call)):
        if moved is not None:
            source.insert_before(statement, source.reindented(moved, ""))
            source.delete(moved)
    return "set_device before GPUs are used"


def _assigned(source: Source, call: Node) -> Node | None:
    """The statement that assigns what set_device is given."""
    value = value_of(source, call.args[0].value) if dotted(call.args[0].value) else None
    statement = source.statement(value) if value is not None else None
    return statement if isinstance(statement, cst.SimpleStatementLine) else None


def _leave_gpu_0(source: Source) -> None:
    """``cuda`` in place of ``cuda:0``, and the current device in place of 0 in device_ids."""
    for string in source.all(cst.SimpleString):
        if string.value[1:-1] == "cuda:0":
            source.replace(string, string.value.replace("cuda:0", "cuda"))
    current = f"{use(source, 'torch.cuda')}.current_device()"
    for call in calls(source, DDP):
        given = argument(call, "device_ids")
        if given is not None and source.code(given.value) == "[0]":
            source.replace(given.value, f"[{current}]")
