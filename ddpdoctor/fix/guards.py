"""Code that runs on some ranks only, and values that ranks have to agree on."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.names import DIST, rank, use, use_module, world_size
from ddpdoctor.fix.source import Node, Source

_RANK = re.compile(r"\b(?:local_)?rank\b|get_rank\(|is_main|is_master|is_primary|main_process", re.IGNORECASE)


def rank_guard(source: Source, node: Node) -> Node | None:
    """The innermost condition by rank around a node, in the same function."""
    for parent in source.above(node):
        if isinstance(parent, cst.FunctionDef):
            return None
        if isinstance(parent, cst.If) and _RANK.search(source.code(parent.test)):
            return parent
    return None


def under_rank_0(source: Source, statement: Node, condition: str) -> None:
    """Put a statement under a condition that is true on rank 0 alone."""
    source.indent_lines(statement, f"if {condition}:")


def is_rank_0(source: Source, at: Node) -> str:
    """The condition for rank 0, as it can be written here: before the group is initialized, by the variable."""
    inits = [call for call in source.all(cst.Call) if (source.code(call.func)).endswith("init_process_group")]
    before = any(
        source.scope(call) is source.scope(at) and source.line(at) < source.line(call) for call in inits
    )
    if before:
        return f'{use_module(source, "os")}.environ.get("RANK", "0") == "0"'
    return f"{rank(source, at)} == 0"


def barrier(source: Source) -> str:
    """A barrier, as the file may write it."""
    return f"{use(source, f'{DIST}.barrier')}()"


def mean(source: Source, at: Node, value: str, name: str) -> str:
    """Lines that put the mean over ranks of a number into a variable."""
    tensor, reduce = use(source, "torch.tensor"), use(source, f"{DIST}.all_reduce")
    return (
        f"{name}_mean = {tensor}(float({value}))\n"
        f"{reduce}({name}_mean)\n"
        f"{name} = {name}_mean.item() / {world_size(source, at)}"
    )


def any_rank(source: Source, condition: str, name: str) -> str:
    """Lines that put into a variable whether a condition is true on any rank."""
    tensor, reduce = use(source, "torch.tensor"), use(source, f"{DIST}.all_reduce")
    greatest = use(source, f"{DIST}.ReduceOp")
    return f"{name} = {tensor}(float({condition}))\n{reduce}({name}, op={greatest}.MAX)"


def plain_if(source: Source, node: Node) -> Node:
    """An if without elif and else.

    Raises:
        CannotPatch: it has one, or is one.
    """
    if node.orelse is not None or isinstance(source.enclosing(node, cst.If, cst.For), cst.Else):
        raise CannotPatch(f"the condition at line {source.line(node)} has more branches")
    return node
