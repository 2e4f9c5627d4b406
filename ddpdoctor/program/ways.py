"""The ways by which a program comes to a line: the calls that lead there, and the conditions in front of it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeAlias

from ddpdoctor.model import Where
from ddpdoctor.program.calls import MOST_CALLS
from ddpdoctor.program.conditions import Condition
from ddpdoctor.program.expressions import Expression
from ddpdoctor.program.files import COMPREHENSIONS, FUNCTIONS, File, own_nodes
from ddpdoctor.program.index import Context, Entity, Point
from ddpdoctor.program.known import SPAWNS, Origin
from ddpdoctor.program.program import Program

_MOST = 20
"""Ways that are followed to one line."""
_Frame: TypeAlias = tuple[File, ast.expr]
"""A call, the read of a property, or what is looked for, in its file."""
_DECIDE = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.Match, *COMPREHENSIONS)
"""What decides whether an expression inside is evaluated, and is no statement with a condition."""
_HARMLESS = ("torch.", "functools.", "builtins.", "contextlib.", "typing.")
"""Where decorators come from that call what they are given as it stands."""


@dataclass(frozen=True, eq=False)
class Way:
    """One way from the lines that Python runs by itself to a line."""

    lines: tuple[Where, ...]
    """The line, then the calls that lead to its function, the innermost first."""
    conditions: tuple[Condition, ...]
    """What has to be so, the innermost first."""
    complete: bool
    """Whether these are all conditions, and the way begins where the program begins."""
    context: Context | None = None
    """The calls through which the function of the line is entered."""
    tried: ast.AST | None = None
    """The ``try`` in whose ``except`` the line stands, where one of the conditions is that of its exception."""


def ways_to(call: Expression) -> list[Way]:
    """The ways to a call; the first of them where there are very many."""
    ways = list(islice(_ways(call.program, call.file, call.node, ()), _MOST))
    raised = [*_raised(call.program, call.file, call.node)]
    also = (
        replace(way, conditions=(*conditions, *way.conditions), complete=False, tried=tried)
        for way in ways
        for tried, conditions in raised
    )
    return [*ways, *islice(also, _MOST)]


def _raised(program: Program, file: File, node: ast.expr) -> Iterator[tuple[ast.AST, list[Condition]]]:
    """What has to be so for an exception to come to the ``except`` around a line that lets the job go on, for each that
    the program raises by itself."""
    around = _inside(file, node, file.scopes[node])
    handler = next((it for it in around if isinstance(it, ast.ExceptHandler)), None)
    if handler is None:
        return
    last = handler.body[-1]
    if isinstance(last, ast.Raise) or program.loops.ends_process(file, last):
        return
    tried = file.parents[handler]
    for statement in tried.body:  # type: ignore[attr-defined]
        places: list[tuple[ast.AST, File, Context | None]] = [(statement, file, None)]
        for call in (it for it in own_nodes(statement) if isinstance(it, ast.Call)):
            entered = (it for it in program.flow.called(Point(call, file)) if isinstance(it, Entity))
            places += [(it.node, it.file, Context(call, file, None, 1)) for it in entered]
        for place, at, context in places:
            for it in (place, *own_nodes(place)):
                if isinstance(it, ast.Raise) and _catches(program, file, handler, at, it):
                    conditions = reversed(program.conditions(at.where(it)))
                    of_call = [replace(it, test=replace(it.test, context=context)) for it in conditions]
                    yield tried, of_call


def _catches(program: Program, file: File, handler: ast.ExceptHandler, at: File, raises: ast.Raise) -> bool:
    """Whether an ``except`` names the class of an exception, or that of all."""
    raised = raises.exc.func if isinstance(raises.exc, ast.Call) else raises.exc
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    own = program.flow.referents(Point(raised, at)) if raised is not None else frozenset()
    names = [
        program.flow.referents(Point(it, file)) if it else frozenset({"builtins.Exception"}) for it in kinds
    ]
    return any("builtins.Exception" in it or not own.isdisjoint(it) for it in names)


def _ways(program: Program, file: File, node: ast.expr, inner: tuple[_Frame, ...]) -> Iterator[Way]:
    frames = (*inner, (file, node))
    scope = file.function_at(node.lineno)
    plain = not any(_decides(program, file, it) for it in _inside(file, node, scope))
    if isinstance(scope, ast.Module):
        yield _way(program, frames, plain)
        return
    for decorator in scope.decorator_list:
        inside = list(_calls_of_decorated(program, file, decorator))
        plain = plain and (bool(inside) or _is_harmless(program, file, decorator))
        frames = (*frames, *inside[:1])
    visited = {at.function_at(it.lineno) for at, it in frames}
    every = (*program.calls_of(scope), *program.flow.reads_of(scope, file))
    calls = [(call, at) for call, at in every if at.function_at(call.lineno) not in visited]
    if (spawned := program.flow.is_spawned(scope, file, SPAWNS)) or not calls:
        yield _way(program, frames, plain and spawned)
    for call, at in calls:
        for way in _ways(program, at, call, frames):
            yield way if plain else replace(way, complete=False)


def _way(program: Program, frames: tuple[_Frame, ...], complete: bool) -> Way:
    conditions: list[Condition] = []
    context_of_call: Context | None = None
    for number, (file, node) in enumerate(frames):
        context: Context | None = None
        for call_file, call in reversed(frames[number + 1 : number + 1 + MOST_CALLS]):
            # A decorated function gives on what it is given.
            if not isinstance(call, ast.Call) or _is_of_decorated(call_file, call):
                continue
            context = Context(call, call_file, context, context.depth + 1 if context else 1)
        context_of_call = context if number == 0 else context_of_call
        for it in reversed(program.conditions(file.where(node))):
            conditions.append(replace(it, test=replace(it.test, context=context)))
    lines = tuple(file.where(node) for file, node in frames)
    return Way(lines, tuple(conditions), complete, context_of_call)


def _inside(file: File, node: ast.AST, scope: ast.AST) -> Iterator[ast.AST]:
    for around in file.above(node):
        if around is scope or isinstance(around, FUNCTIONS):
            return
        yield around


def _decides(program: Program, file: File, node: ast.AST) -> bool:
    if isinstance(node, ast.Match):
        return not Expression(program, file, node.subject).only(Origin.ENVIRONMENT)
    return isinstance(node, _DECIDE)


def _calls_of_decorated(program: Program, file: File, decorator: ast.expr) -> Iterator[_Frame]:
    """The calls of a decorated function in the program's decorator."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    for made in program.flow.referents(Point(named, file)):
        if isinstance(made, Entity) and isinstance(made.node, FUNCTIONS):
            inside = (it for it in made.file.calls if made.node in made.file.above(it))
            yield from ((made.file, it) for it in inside if _is_of_decorated(made.file, it))


def _is_of_decorated(file: File, call: ast.expr) -> bool:
    """Whether a function inside of another one calls what the outer one is given: ``return fn(*args)``."""
    function = call.func if isinstance(call, ast.Call) else None
    around = [it for it in file.above(call) if isinstance(it, FUNCTIONS)]
    given = [it.arg for outer in around[1:] for it in outer.args.args[:1]]
    own = [it.arg for it in around[0].args.args] if around else []
    return isinstance(function, ast.Name) and function.id in given and function.id not in own


def _is_harmless(program: Program, file: File, decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    names = program.flow.referents(Point(named, file))
    return bool(names) and all(isinstance(it, str) and it.startswith(_HARMLESS) for it in names)
