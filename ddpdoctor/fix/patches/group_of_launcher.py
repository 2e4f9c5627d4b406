"""Takes rank, number of ranks and address from what torchrun set."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, calls
from ddpdoctor.fix.source import Node, Source

cures = ("DD005",)
_VARIABLE = re.compile(r"(os\.environ|environ)\[.(?:RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT).\]$")


def apply(case: Case) -> str:
    """Leave out what the launcher's variables say, and set them only where there is no launcher."""
    source = case.source
    settings = _settings(source)
    at_line = [statement for statement in settings if source.line(statement) == case.line]
    given = [] if at_line else _given(source, case)
    for statement in settings:
        assigned = statement.body[0]
        target = assigned.targets[0].target
        name, value = source.code(target.slice[0]), source.code(assigned.value)
        source.replace(assigned, f"{source.code(target.value)}.setdefault({name}, {value})")
    if not given and not settings:
        raise CannotPatch("nothing in this file contradicts the launcher")
    return "rank and number of ranks of the launcher" if given else "the variables of the launcher"


def _settings(source: Source) -> list[Node]:
    """The statements that overwrite a variable of the launcher."""
    return [
        node
        for node in source.all(cst.SimpleStatementLine)
        if len(node.body) == 1
        and isinstance(node.body[0], cst.Assign)
        and _VARIABLE.match(source.code(node.body[0].targets[0].target))
    ]


def _given(source: Source, case: Case) -> list[Node]:
    """Arguments of init_process_group that say what the launcher says; they are removed."""
    given = []
    for call in calls(source, "init_process_group", within=case.statement):
        arguments = [arg for name in ("init_method", "rank", "world_size") if (arg := argument(call, name))]
        if arguments:
            source.remove_arguments(call, arguments)
        given += arguments
    return given
