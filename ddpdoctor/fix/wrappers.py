"""Wrapped models in a file: where they are wrapped, what they are called, and optimizers over them."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import calls, dotted
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import call_sites, parameter_of, passed, value_of

DDP = "DistributedDataParallel"
TORCH_DDP = f"torch.nn.parallel.{DDP}"


def wraps(case: Case) -> list[tuple[Source, Node]]:
    """The calls that wrapped a module in the run; those in the file of the finding where the run does not tell.

    Raises:
        CannotPatch: there are none.
    """
    wrappers = [wrapper for recording in case.trace.recorded.values() for wrapper in recording.wrappers]
    made = [wrapper.at for wrapper in wrappers if wrapper.at and not wrapper.library]
    if places := {(place.file, place.line): place for place in made}:
        return [case.call_at(place, DDP) for place in places.values()]
    inside = [(case.source, call) for call in calls(case.source, DDP)]
    if not inside:
        raise CannotPatch(f"no {DDP} is called there")
    return inside


def is_wrapped(source: Source, node: Node, depth: int = 2) -> bool:
    """Whether a name means a wrapper: assigned from a call that wraps, or passed by a caller that has one."""
    value = value_of(source, node)
    if value is not None:
        return _wraps(source, value)
    parameter = parameter_of(source, node)
    if parameter is None or not depth:
        return False
    function, number = parameter
    given = [passed(source, call, function, number) for call in call_sites(source, function)]
    return any(
        value is not None and (_wraps(source, value) or is_wrapped(source, value, depth - 1))
        for value in given
    )


def _wraps(source: Source, value: Node) -> bool:
    return bool(calls(source, DDP, within=value))


def calls_of_wrappers(source: Source, within: Node) -> list[Node]:
    """The forwards of wrappers in a part of a file: ``model(x)``."""
    return [
        call
        for call in source.all(cst.Call, within=within)
        if dotted(call.func) and is_wrapped(source, call.func)
    ]


def optimizers(source: Source) -> list[Node]:
    """The calls that make optimizers: of what has a name of an optimizer, with parameters."""
    return [
        call
        for call in source.all(cst.Call)
        if call.args
        and source.all(cst.Call, within=call.args[0])
        and any(callee.func.attr.value == "parameters" for callee in _methods(source, call.args[0]))
        and isinstance(source.statement(call), cst.SimpleStatementLine)
        and (dotted(call.func) or "").rpartition(".")[2][:1].isupper()
    ]


def _methods(source: Source, within: Node) -> list[Node]:
    return [call for call in source.all(cst.Call, within=within) if isinstance(call.func, cst.Attribute)]


def models_of(source: Source, optimizer: Node) -> list[Node]:
    """What an optimizer was given the parameters of."""
    return [call.func.value for call in _methods(source, optimizer) if call.func.attr.value == "parameters"]


def assigned_to(source: Source, call: Node) -> Node:
    """The name that the statement of a call assigns its value to.

    Raises:
        CannotPatch: it assigns it to none.
    """
    statement = source.statement(call)
    node = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if isinstance(node, cst.Assign) and node.value is call and dotted(node.targets[0].target):
        return node.targets[0].target
    raise CannotPatch(f"what line {source.line(call)} makes has no name of its own")
