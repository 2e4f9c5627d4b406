"""Takes rank, number of ranks and address from what torchrun set."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import INIT, argument, means
from ddpdoctor.fix.source import Node, Source

cures = ("DD005",)
changes = ("samples",)
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def apply(case: Case) -> str:
    """Leave out what the launcher's variables say, and set them only where there is no launcher."""
    source = case.source
    settings = set_variables(source, *_VARIABLES)
    at_line = [statement for statement in settings if statement.lineno == case.line]
    given = [] if at_line else _given(source, case)
    for statement in settings:
        target = statement.targets[0]
        name, value = source.code(target.slice), source.code(statement.value)
        source.replace(statement, f"{source.code(target.value)}.setdefault({name}, {value})")
    if not given and not settings:
        raise CannotPatch("nothing in this file contradicts the launcher")
    return "rank and number of ranks of the launcher" if given else "the variables of the launcher"


def set_variables(source: Source, *names: str) -> list[Node]:
    """The statements that set one of these environment variables."""
    return [
        node
        for node in source.all(ast.Assign)
        if isinstance(node.targets[0], ast.Subscript)
        and means(source, node.targets[0].value, "os.environ")
        and getattr(node.targets[0].slice, "value", None) in names
    ]


def _given(source: Source, case: Case) -> list[Node]:
    """Arguments of init_process_group that say what the launcher says; they are removed."""
    given = []
    for call in case.calls(INIT):
        values = [argument(call, None, name) for name in ("init_method", "rank", "world_size")]
        values = [value for value in values if value is not None]
        source.remove_arguments(call, values)
        given += values
    return given
