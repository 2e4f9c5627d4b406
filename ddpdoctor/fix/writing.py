"""Lines that patches add: what runs on one rank, and what ranks agree on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.imports import DIST, use, use_module
from ddpdoctor.fix.reading import (
    INIT,
    argument,
    arguments,
    calls,
    dotted,
    has_group,
    is_method,
    local_rank,
    may_lack_group,
    rank,
    readable,
    tells_rank_0,
    world_size,
)
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.program.known import SPAWNS
from ddpdoctor.program.points import Point


def under_condition(source: Source, statement: Node, condition: str) -> None:
    """Put a statement under a condition; a condition that it is gets one more."""
    if not isinstance(statement, ast.If) or statement.orelse:
        source.indent_lines(statement, f"if {condition}:")
        return
    either = isinstance(statement.test, ast.BoolOp) and isinstance(statement.test.op, ast.Or)
    begin, end = source.span(statement.test)
    first = f"({condition})" if " or " in condition else condition
    source.replace_span(begin, begin, f"{first} and {'(' * either}")
    source.replace_span(end, end, ")" * either)


def is_rank_0(source: Source, at: Node) -> str:
    """The condition for rank 0, as it can be written here: before the group is initialized, by the variable."""
    inits = calls(source, INIT)
    if any(source.scope(call) is source.scope(at) and at.lineno < call.lineno for call in inits):
        return f'{use_module(source, "os")}.environ.get("RANK", "0") == "0"'
    for call in source.file.calls:  # a function of the script's own
        if dotted(call.func) and not arguments(call) and tells_rank_0(source, call):
            return str(source.code(call))
    number = rank(source, at)
    if number.startswith("("):
        return f"not {has_group(source)} or {rank(source, at, plain=True)} == 0"
    return f"{number} == 0"


def is_local_rank_0(source: Source, at: Node) -> str:
    """The condition for one rank of each host, as it can be written here.

    Raises:
        CannotPatch: the script starts its ranks itself, and the file does not tell which is the first of its host.
    """
    if name := local_rank(source, at):
        return f"{name} == 0"
    if calls(source, *SPAWNS):
        raise CannotPatch("it is not known which rank is the first of its host")
    return f'{use_module(source, "os")}.environ.get("LOCAL_RANK", "0") == "0"'


def barrier(source: Source) -> str:
    """A barrier, as the file may write it."""
    return with_group(source, f"{use(source, f'{DIST}.barrier')}()")


def with_group(source: Source, code: str) -> str:
    """Lines that need a process group; under a condition where the script does without in a single process."""
    if not may_lack_group(source):
        return code
    lines = "\n".join(f"\t{line}" for line in code.split("\n"))
    return f"if {has_group(source)}:\n{lines}"


def module_of(source: Source, wrapper: str) -> str:
    """``model.module``; the model itself where a single process, without a process group, does not wrap it."""
    inside = f"{wrapper}.module"
    return f"({inside} if {has_group(source)} else {wrapper})" if may_lack_group(source) else inside


def mean(source: Source, at: Node, value: str, name: str) -> str:
    """Lines that put the mean over ranks of a number into a variable."""
    first = f"{name} = {value}\n" if may_lack_group(source) else ""
    return first + with_group(source, _mean(source, at, name if first else value, name))


def means_of(source: Source, at: Node, numbers: Iterable[str]) -> str:
    """Lines that put the mean over ranks of each number in its place: of a variable, or an entry of a dictionary."""
    return with_group(source, "\n".join(_mean(source, at, number, number) for number in numbers))


def _mean(source: Source, at: Node, value: str, name: str) -> str:
    tensor = f"{re.sub(r'[^0-9A-Za-z_]+', '_', name).strip('_')}_mean"
    return (
        f"{tensor} = {tensor_of(source, at, value)}\n"
        f"{use(source, f'{DIST}.all_reduce')}({tensor})\n"
        f"{name} = {tensor}.item() / {world_size(source, at, plain=True)}"
    )


def any_rank(source: Source, at: Node, condition: str, name: str) -> str:
    """Lines that put into a variable whether a condition is true on any rank."""
    reduce, greatest = use(source, f"{DIST}.all_reduce"), use(source, f"{DIST}.ReduceOp")
    together = with_group(source, f"{reduce}({name}, op={greatest}.MAX)")
    return f"{name} = {tensor_of(source, at, condition)}\n{together}"


def tensor_of(source: Source, at: Node, value: str) -> str:
    """A number as a tensor that ranks can reduce: NCCL reduces on GPUs only."""
    device = _device(source, at)
    option = f", device={device}" if device else ""
    return f"{use(source, 'torch.tensor')}(float({value}){option})"


def _device(source: Source, at: Node) -> str:
    """The device of this rank, as the file may write it here; empty in a file that names no GPU.

    Raises:
        CannotPatch: the file does not tell.
    """
    if name := readable(source, at, lambda point: _is_device(source, point)):
        return name
    # What the text does not define, such as an option, is known by how this function uses it.
    used = [value for call in source.all(ast.Call, within=source.scope(at)) if (value := _as_device(call))]
    for given in used:
        if isinstance(given, ast.Attribute) and not source.program.flow.copies(source.point(given)):
            return source.code(given)
    if calls(source, "torch.cuda.set_device"):
        return '"cuda"'
    if re.search(r"cuda|nccl", source.text):
        raise CannotPatch("it is not known which device the numbers of a rank belong to")
    return ""


def _is_device(source: Source, point: Point) -> bool:
    """Whether a value was made as a device, or is the name of one."""
    flow = source.program.flow
    ends = flow.ends(point)
    return bool(ends) and all(
        (isinstance(end.node, ast.Call) and "torch.device" in flow.referents(end.at(end.node.func)))
        or (isinstance(end.node, (ast.Constant, ast.JoinedStr)) and _names_device(end.node))
        for end in ends
    )


def _names_device(node: Node) -> bool:
    text = node.value if isinstance(node, ast.Constant) else getattr(node.values[0], "value", "")
    return isinstance(text, str) and text.partition(":")[0] in ("cuda", "cpu")


def _as_device(call: Node) -> Node | None:
    """What a call is given as a device: ``x.to(device)``, ``device=self.device``."""
    return argument(call, 0 if is_method(call, "to") else None, "device")


def plain_if(source: Source, node: Node) -> Node:
    """An if without elif and else.

    Raises:
        CannotPatch: it has one, or is one.
    """
    if node.orelse or source.code(node).startswith("elif"):
        raise CannotPatch(f"the condition at line {node.lineno} has more branches")
    return node
