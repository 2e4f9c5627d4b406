"""Loops that do nothing but look for something, and sleep in between."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.program.expressions import Expression
from ddpdoctor.program.files import LOOPS, TRIES, File, Loop, lines, own_nodes
from ddpdoctor.program.known import Origin
from ddpdoctor.program.program import Program

_SLEEPS = frozenset({"time.sleep"})
_BESIDE = ("time.", "datetime.", "logging.", "sys.stdout.", "sys.stderr.")
"""What a loop may call besides, and still do nothing but look."""
_BESIDE_EXACTLY = frozenset({"print", "builtins.print", "len", "builtins.len"})
_MOST_PLACES = 3
_ENDLESS = frozenset({"itertools.count", "itertools.repeat", "itertools.cycle"})


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
    gives_up: bool = False
    """Whether the loop may end by itself: after a time, or so many turns."""
    of_files: bool = False
    """Whether it looks at files or folders alone."""


def poll_of(places: Sequence[Where], script: str = "") -> Poll | None:
    """The loop that does nothing but look in which a rank is; None where it does more, or is in none. The rank came
    there through these lines of the script's own functions, the innermost first."""
    polls = (poll_at(where, Program.holding(where, script)) for where in places[:_MOST_PLACES])
    return next(filter(None, polls), None)


def poll_at(where: Where, program: Program) -> Poll | None:
    """The loop around a line that does nothing but look and sleep; None where it does, or where there is none."""
    file = program.file(where)
    around = [it for it in file.statements_at(where.line) if isinstance(it, LOOPS)] if file else []
    return _poll(program, file, around[-1]) if file and around else None


def _poll(program: Program, file: File, loop: Loop) -> Poll | None:
    looks = [it for it in _looks(loop) if isinstance(loop, ast.While) or _calls(it[0])]
    calls = [node for node in own_nodes(loop) if isinstance(node, ast.Call)]
    names = {call: Expression(program, file, call.func).names for call in calls}
    looked = {inner for look, _ in looks for inner in ast.walk(look)}
    head = set() if isinstance(loop, ast.While) else set(ast.walk(loop.iter))
    rest = [name or {""} for call, name in names.items() if call not in looked and call not in head]
    sleeps = any(_SLEEPS & name for name in names.values())
    if not looks or not (sleeps or any(_calls(look) for look, _ in looks)) or not all(map(_is_beside, rest)):
        return None
    look, until = next((it for it in looks if _calls(it[0])), looks[0])
    kinds = [Expression(program, file, it).origins.kinds for it, _ in looks]
    gives_up = any(Origin.CLOCK in it for it in kinds) or _is_counted(program, file, loop)
    of_files = all(it <= {Origin.FILES, Origin.EQUAL, Origin.CLOCK, Origin.ENVIRONMENT} for it in kinds)
    of_files = of_files and any(Origin.FILES in it for it in kinds)
    return Poll(file.where(look), ast.unparse(look), until, lines(loop), gives_up, of_files)


def _calls(look: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(look))


def _is_counted(program: Program, file: File, loop: Loop) -> bool:
    """Whether the loop ends after so many turns: by what it goes over, or by a variable that each turn changes."""
    if not isinstance(loop, ast.While):
        return not _ENDLESS.intersection(Expression(program, file, loop.iter).called)
    changed = {ast.unparse(it.target) for it in own_nodes(loop) if isinstance(it, ast.AugAssign)}
    tests = [loop.test, *(it.test for it in own_nodes(loop) if isinstance(it, ast.If) and _ends(it.body))]
    parts = (it for test in tests for it in ast.walk(test) if isinstance(it, ast.expr))
    return any(ast.unparse(it) in changed for it in parts)


def _ends(block: list[ast.stmt]) -> bool:
    return any(isinstance(it, ast.Break | ast.Return | ast.Raise) for it in block)


def _is_beside(names: frozenset[str] | set[str]) -> bool:
    return all(name.startswith(_BESIDE) or name in _BESIDE_EXACTLY for name in names)


def _looks(loop: Loop) -> Iterator[tuple[ast.expr, bool | None]]:
    """The expressions by which the loop may end, and what they are to become for that."""
    if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant):
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
