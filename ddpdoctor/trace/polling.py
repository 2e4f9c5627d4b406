"""A rank that looks again and again, and sleeps in between: for what, and who would give it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.program.files import TRIES, File, lines, own_nodes
from ddpdoctor.program.program import Expression, Program
from ddpdoctor.recorder.events.files import FileEvent, FileRead, PathAsked
from ddpdoctor.trace.rank_guards import program_of
from ddpdoctor.trace.recording import Recording

_SLEEPS = frozenset({"time.sleep"})
_BESIDE = ("time.", "datetime.", "logging.", "sys.stdout.", "sys.stderr.")
"""What a loop may call besides, and still do nothing but look."""
_BESIDE_EXACTLY = frozenset({"print", "builtins.print", "len", "builtins.len"})


@dataclass(frozen=True)
class Poll:
    """A loop that ends once something outside of the rank has changed."""

    at: Where
    """The line that looks."""
    look: str
    """The expression by which it looks, as it is written."""
    until: bool | None
    """What the expression is to become; None where an exception is to cease."""
    lines: range
    """Of the loop."""


@dataclass(frozen=True)
class Awaited:
    """The path that a rank looks at."""

    path: str
    by: int | None
    """The rank that made it last; None where none did."""
    made: Where | None
    removed: bool
    """Whether a rank has removed it since."""


def poll_at(where: Where | None, recordings: Mapping[int, Recording]) -> Poll | None:
    """The loop around a line that does nothing but look and sleep; None where it does, or where there is none."""
    program = program_of(where, recordings) if where is not None else None
    file = program.file(where) if program else None
    if program is None or file is None or where is None:
        return None
    around = [it for it in file.statements_at(where.line) if isinstance(it, ast.While)]
    return _poll(program, file, around[-1]) if around else None


def _poll(program: Program, file: File, loop: ast.While) -> Poll | None:
    looks = list(_looks(loop))
    calls = [node for node in own_nodes(loop) if isinstance(node, ast.Call)]
    names = {call: program.names(Expression(program, file, call.func)) for call in calls}
    looked = {inner for look, _ in looks for inner in ast.walk(look)}
    rest = [name or {""} for call, name in names.items() if call not in looked]
    sleeps = any(_SLEEPS & name for name in names.values())
    calls_to_look = any(isinstance(node, ast.Call) for node in looked)
    if not looks or not (sleeps or calls_to_look) or not all(map(_is_beside, rest)):
        return None
    look, until = looks[0]
    return Poll(file.where(look), ast.unparse(look), until, lines(loop))


def _is_beside(names: frozenset[str] | set[str]) -> bool:
    return all(name.startswith(_BESIDE) or name in _BESIDE_EXACTLY for name in names)


def _looks(loop: ast.While) -> Iterator[tuple[ast.expr, bool | None]]:
    """The expressions by which the loop may end, and what they are to become for that."""
    if not isinstance(loop.test, ast.Constant):
        yield _bare(loop.test, until=False)
    for node in own_nodes(loop):
        if isinstance(node, ast.If) and _leaves(node.body):
            yield _bare(node.test, until=True)
        elif isinstance(node, TRIES) and _leaves([*node.body, *node.orelse]) and node.handlers:
            yield from ((call, None) for call in ast.walk(node.body[0]) if isinstance(call, ast.Call))


def _leaves(block: list[ast.stmt]) -> bool:
    return any(isinstance(statement, ast.Break | ast.Return) for statement in block)


def _bare(test: ast.expr, *, until: bool) -> tuple[ast.expr, bool]:
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, until = test.operand, not until
    return test, until


def awaited_path(rank: int, poll: Poll, recordings: Mapping[int, Recording]) -> Awaited | None:
    """The file or folder that a rank looks at; None where its record names none."""
    own = recordings.get(rank)
    if own is None:
        return None
    seen: list[PathAsked | FileEvent | FileRead] = [*own.asked, *own.files, *own.events(FileRead)]
    here = [event for event in seen if _is_in(event, poll)]
    if not here:
        return None
    path = max(here, key=lambda event: event.time).path
    events = [
        (event.time + recording.clock, other, event)
        for other, recording in recordings.items()
        for event in recording.files
        if event.path == path and not (other == rank and _is_in(event, poll))
    ]
    last = max(events, key=lambda it: it[0], default=None)
    made = [it for it in events if it[2].action != "remove"]
    by = max(made, key=lambda it: it[0], default=None)
    removed = last is not None and last[2].action == "remove"
    return Awaited(path, by[1] if by else None, by[2].at if by else None, removed)


def _is_in(event: PathAsked | FileEvent | FileRead, poll: Poll) -> bool:
    at = event.at
    return at is not None and at.file == poll.at.file and at.line in poll.lines
