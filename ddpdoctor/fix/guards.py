"""Code that runs on some ranks only, and values that ranks have to agree on."""

from __future__ import annotations

import re
from collections.abc import Iterable

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.names import DIST, calls, dotted, use, use_module
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import assignments, call_sites, has_group, may_lack_group, pairs, rank, world_size

_RANK = re.compile(r"\b(?:local_)?rank\b|get_rank\(|is_main|is_master|is_primary|main_process", re.IGNORECASE)
_LOCAL = ("local_rank", "LOCAL_RANK")
_OF_RANK = re.compile(
    rf"exists|is_?file|is_?dir|loss|acc|best|score|metric|miou|(?:\b|_)m?ap\d*\b|psnr|bleu|{_RANK.pattern}",
    re.IGNORECASE,
)
"""Conditions that can differ between ranks: by what is on the disk, by a metric, by the rank."""
_MAIN = ("is_main_process", "is_master_process", "is_master", "is_main", "is_rank_0", "is_rank_zero")
"""What scripts call a function that is true on rank 0, and in a single process."""


def rank_guard(source: Source, node: Node) -> Node | None:
    """The innermost condition by rank around a node, in the same function."""
    for parent in source.above(node):
        if isinstance(parent, cst.FunctionDef):
            return None
        if isinstance(parent, cst.If) and _RANK.search(source.code(parent.test)):
            return parent
    return None


def under_rank_0(source: Source, statement: Node, condition: str) -> None:
    """Put a statement under a condition that is true on rank 0 alone; a condition that it is gets one more."""
    if not isinstance(statement, cst.If) or statement.orelse is not None:
        source.indent_lines(statement, f"if {condition}:")
        return
    either = isinstance(statement.test, cst.BooleanOperation) and isinstance(statement.test.operator, cst.Or)
    begin, end = source.span(statement.test)
    source.replace_span(
        begin, begin, f"{f'({condition})' if ' or ' in condition else condition} and {'(' * either}"
    )
    source.replace_span(end, end, ")" * either)


def is_rank_0(source: Source, at: Node) -> str:
    """The condition for rank 0, as it can be written here: before the group is initialized, by the variable."""
    inits = [call for call in source.all(cst.Call) if (source.code(call.func)).endswith("init_process_group")]
    before = any(
        source.scope(call) is source.scope(at) and source.line(at) < source.line(call) for call in inits
    )
    if before:
        return f'{use_module(source, "os")}.environ.get("RANK", "0") == "0"'
    for call in calls(source, *_MAIN):
        if dotted(call.func) and not call.args:
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
    name = next((dotted(target) for target, _ in assignments(source, at) if dotted(target) in _LOCAL), None)
    function = source.enclosing(at, cst.FunctionDef)
    parameters = (
        [parameter.name.value for parameter in function.params.params] if function is not None else []
    )
    name = name or next((parameter for parameter in parameters if parameter in _LOCAL), None)
    if name:
        return f"{name} == 0"
    if calls(source, "spawn"):
        raise CannotPatch("it is not known which rank is the first of its host")
    return f'{use_module(source, "os")}.environ.get("LOCAL_RANK", "0") == "0"'


def all_come_to(source: Source, node: Node, depth: int = 2) -> bool:
    """Whether every rank comes to a line if one does, as far as the conditions around it and its calls tell."""
    function = source.enclosing(node, cst.FunctionDef)
    for parent in source.above(node):
        if parent is function:
            break
        of_rank = isinstance(parent, (cst.If, cst.IfExp, cst.While)) and _OF_RANK.search(
            source.code(parent.test)
        )
        if of_rank and not calls(source, "barrier", within=parent):
            return False
    sites = call_sites(source, function) if function is not None and depth else []
    return all(all_come_to(source, site, depth - 1) for site in sites)


def differs_around(source: Source, node: Node) -> Node | None:
    """The outermost condition around a node, in its function, that can differ between ranks by a metric."""
    outer = None
    for parent in source.above(node):
        if isinstance(parent, cst.FunctionDef):
            break
        if isinstance(parent, cst.If) and _OF_RANK.search(source.code(parent.test)):
            outer = parent
    return outer


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


def means(source: Source, at: Node, numbers: Iterable[str]) -> str:
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
    if not re.search(r"cuda|nccl|\bdevice\b", source.text):
        return ""
    known = {
        name for node in source.all(cst.Arg, within=source.scope(at)) if (name := _as_device(source, node))
    }
    near = [name for name in ("device", "self.device", "args.device") if name in known]
    if near:
        return near[0]
    if _is_in_reach(source, at, "device"):
        return "device"
    if _is_of_class(source, at, "self.device"):
        return "self.device"
    if calls(source, "set_device"):
        return '"cuda"'
    raise CannotPatch("it is not known which device the numbers of a rank belong to")


def _as_device(source: Source, arg: Node) -> str:
    """What a call is given as a device: ``x.to(device)``, ``device=self.device``."""
    if arg.keyword is not None:
        return str(source.code(arg.value)) if arg.keyword.value == "device" else ""
    call = source.enclosing(arg, cst.Call)
    moves = (
        call is not None
        and isinstance(call.func, cst.Attribute)
        and call.func.attr.value == "to"
        and call.args[0] is arg
    )
    return str(source.code(arg.value)) if moves else ""


def _is_in_reach(source: Source, at: Node, name: str) -> bool:
    """Whether a variable was assigned before, or is a parameter here."""
    function = source.enclosing(at, cst.FunctionDef)
    parameters = function.params.params if function is not None else ()
    if any(parameter.name.value == name for parameter in parameters):
        return True
    scopes = (source.scope(at), source.tree)
    return any(
        source.scope(node) in scopes and dotted(target.target) == name
        for node in source.all(cst.Assign)
        for target in node.targets
        if source.scope(node) is source.tree or source.line(node) < source.line(at)
    )


def _is_of_class(source: Source, at: Node, name: str) -> bool:
    """Whether the class assigns this attribute to itself."""
    within = source.enclosing(at, cst.ClassDef)
    made = source.all(cst.Assign, cst.AnnAssign, within=within) if within is not None else []
    return any(dotted(target) == name for node in made for target, _ in pairs(node))


def plain_if(source: Source, node: Node) -> Node:
    """An if without elif and else.

    Raises:
        CannotPatch: it has one, or is one.
    """
    if node.orelse is not None or isinstance(source.enclosing(node, cst.If, cst.For), cst.Else):
        raise CannotPatch(f"the condition at line {source.line(node)} has more branches")
    return node
