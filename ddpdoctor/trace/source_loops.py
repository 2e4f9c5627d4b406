"""Which lines of the script stand in one loop, and by which branch it is left."""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from ddpdoctor.model import Where
from ddpdoctor.trace.syntax import (
    LARGEST,
    called_name,
    calls_of,
    enclosing_function,
    lines,
    own_nodes,
    parsed,
)

_WHOLE_FILE = range(LARGEST)
"""The lines of a module's own code, which are in no function."""


def is_after_loops(inside: Where | None, other: Where | None) -> bool:
    """Whether a line is behind the loops around another one, so that who has come there has left them."""
    if inside is None or other is None or inside.line is None or other.line is None:
        return False
    here, there = _read(inside.file), _read(other.file)
    if here is None or there is None:
        return other.function == "<module>" != inside.function
    scope, files = there.scope_of(other.line), (here, there)
    calls = _calls_between(inside, other)
    if share_a_loop(inside, other) or (calls is not None and max(calls, default=math.inf) > other.line):
        return False
    # Who comes there again and again leaves these loops each time: by a decision only where there is one.
    again = _is_repeated(there.functions.get(scope, ""), files)
    return any(loop.branches or not again for loop in _left(inside, other))


def share_a_loop(inside: Where, other: Where) -> bool:
    """Whether a line stands in one of the loops around another one, which may be in functions that it calls."""
    here, there = _read(inside.file), _read(other.file)
    if here is None or there is None or inside.line is None or other.line is None:
        return False
    calls = _calls_between(inside, other)
    around = here.around(inside.line) if calls is None else [o for line in calls for o in there.around(line)]
    return any(other.line in loop.lines for loop in around)


def is_repeated_with(inside: Where, other: Where) -> bool:
    """Whether each turn of the innermost loop around a line may come to another, in one function or in one it calls."""
    for function in (inside, other):
        source = _read(function.file)
        here, there = _lines_in_function_of(function, inside), _lines_in_function_of(function, other)
        if source and here and there:
            return any(
                all(line in loop.lines for loop in source.around(each)) for each in here for line in there
            )
    return False


def is_in_loop_at(loop: Where | None, other: Where | None) -> bool:
    """Whether a line stands in the loop that begins at another one."""
    source = _read(loop.file) if loop else None
    if loop is None or other is None or source is None or other.line is None or loop.file != other.file:
        return False
    return any(it.lines.start == loop.line and other.line in it.lines for it in source.loops)


def is_between(line: Where | None, first: Where | None, last: Where | None) -> bool | None:
    """Whether a line stands behind one and ahead of another, where they or what leads to them are in one function.

    None of a line in a function that is called there, and elsewhere as well.
    """
    if line is None or last is None:
        return False
    for function in (last, line):
        here, end = _lines_in_function_of(function, line), _lines_in_function_of(function, last)
        begin = _lines_in_function_of(function, first) if first else []
        if here and end:
            inside = {min(begin, default=0) <= each < min(end) for each in here}
            return None if len(inside) > 1 else inside.pop()
    return False


def _lines_in_function_of(function: Where, line: Where) -> list[int]:
    """The lines of the function around one that lead to another, or this itself."""
    calls = _calls_between(line, function)
    return calls if calls is not None else [line.line] if line.line is not None else []


def _calls_between(inside: Where, other: Where) -> list[int] | None:
    """The lines of the other line's function that call what leads to a line; None where both are in one function."""
    here, there = _read(inside.file), _read(other.file)
    if here is None or there is None or inside.line is None or other.line is None:
        return []
    scope = there.scope_of(other.line)
    if here == there and here.scope_of(inside.line) == scope:
        return None
    leads = _callers(name_of(inside), (here, there))
    return [call.line for call in there.calls if call.name in leads and call.scope == scope]


def exit_branch(inside: Where | None, other: Where | None) -> Where | None:
    """The branch by which the loops around a line are left for another line; None where it is not the only one.

    Args:
        inside: a line of the loop.
        other: where a rank was when it had left it; in a function that calls the loop's, for instance.
    """
    if inside is None or inside.line is None:
        return None
    branching = [loop for loop in _left(inside, other) if loop.branches]
    # An inner one is left each time that the outer one goes on.
    if not branching or len(set(branching[0].branches)) > 1:
        return None
    loop = branching[0]
    same = (loop.file, loop.function) == (inside.file, name_of(inside))
    return Where(loop.file, loop.branches[0], inside.function if same else loop.function)


def exit_branches(inside: Where) -> set[int]:
    """The lines of all conditions by which loops around a line of its function are left."""
    source = _read(inside.file)
    around = source.around(inside.line) if source and inside.line is not None else []
    return {branch for loop in around for branch in loop.branches}


def skip_branch(before: Where | None, behind: Where | None) -> Where | None:
    """The branch by which a line of a function is left out that stands behind another; None where it is not one."""
    if before is None or behind is None or before.line is None or behind.line is None:
        return None
    tree, source = parsed(before.file), _read(before.file)
    if tree is None or source is None or before.file != behind.file:
        return None
    between = range(before.line + 1, behind.line)
    if source.scope_of(before.line) != source.scope_of(behind.line):
        return None
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If) and node.lineno in between]
    leads_past: list[ast.If | ast.ExceptHandler] = [
        branch for branch in branches if behind.line in lines(branch) or _ends_a_turn(branch)
    ]
    if not leads_past:
        loop = next(iter(reversed(source.around(behind.line))), None)
        handlers = _handlers(tree, behind.line)
        leads_past = [handler for handler in handlers if loop and handler.lineno in loop.lines]
    return Where(before.file, leads_past[0].lineno, before.function) if len(leads_past) == 1 else None


def early_return(at: Where | None) -> Where | None:
    """The branch that leaves ahead of a line, in its function or in one that leads to it; None where it is not one."""
    tree = parsed(at.file) if at is not None else None
    if at is None or at.line is None or tree is None:
        return None
    line, visited = at.line, set[str]()
    while not isinstance(function := enclosing_function(tree, line), ast.Module):
        ahead = [
            node for node in own_nodes(function) if isinstance(node, ast.If) and _leaves_ahead(node, line)
        ]
        calls = calls_of(tree, function.name)
        if ahead or function.name in visited or len(calls) != 1:
            return Where(at.file, ahead[0].lineno, function.name) if len(ahead) == 1 else None
        visited.add(function.name)
        line = calls[0]
    return None


def _leaves_ahead(branch: ast.If, line: int) -> bool:
    last = branch.body[-1]
    exits = isinstance(last, ast.Raise) and "SystemExit" in ast.unparse(last)
    leaves = exits or isinstance(last, ast.Return)
    return leaves and branch.lineno < line and line not in lines(*branch.body)


def _handlers(tree: ast.Module, line: int) -> list[ast.ExceptHandler]:
    """What catches the exceptions of a line, and goes on."""
    around = (node for node in ast.walk(tree) if isinstance(node, ast.Try) and line in lines(*node.body))
    return [
        handler
        for statement in around
        for handler in statement.handlers
        if not any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    ]


def _ends_a_turn(branch: ast.If) -> bool:
    return any(isinstance(node, ast.Continue | ast.Return) for node in (*branch.body, *branch.orelse))


def _left(inside: Where, other: Where | None) -> list[_Loop]:
    """The loops that lead to a line and do not stand around the other, the outer ones first."""
    here, there = _read(inside.file), _read(other.file) if other else None
    loops = here.around(inside.line) if here and inside.line else []
    if here and other and there and other.line and inside.line:
        scope = there.scope_of(other.line)
        if here != there or here.scope_of(inside.line) != scope:
            loops = [*_between(there, scope, _callers(name_of(inside), (here, there)), here), *loops]
    return [loop for loop in loops if not (other and other.file == loop.file and other.line in loop.lines)]


def _between(source: _Source, scope: range, leads: Collection[str], last: _Source) -> Iterator[_Loop]:
    """The loops around the calls that lead from one function to another."""
    to_visit, visited = [(source, scope)], {scope}
    for file, lines_of_function in to_visit:
        for call in file.calls:
            if call.scope == lines_of_function and call.name in leads:
                yield from file.around(call.line)
                called = [
                    (there, function)
                    for there in (source, last)
                    for function, name in there.functions.items()
                    if name == call.name and function not in visited
                ]
                visited.update(function for _, function in called)
                to_visit += called


def name_of(where: Where) -> str:
    """The function's own name, without the class around it."""
    return (where.function or "").rpartition(".")[2]


def _callers(function: str, files: Iterable[_Source]) -> set[str]:
    """The names of a function and of all that lead to it, by who calls whom."""
    names = {function}
    while new := {
        file.functions.get(call.scope, "") for file in files for call in file.calls if call.name in names
    } - {*names, ""}:
        names |= new
    return names


def _is_repeated(function: str, files: Sequence[_Source]) -> bool:
    """Whether a loop leads to it."""
    names = _callers(function, files) if function else set()
    return any(call.name in names and file.around(call.line) for file in files for call in file.calls)


@dataclass(frozen=True)
class _Loop:
    file: str
    function: str
    lines: range
    branches: tuple[int, ...]
    """Lines of the conditions under which it is left: its own, or that of a break or a return."""


@dataclass(frozen=True)
class _Call:
    name: str
    line: int
    scope: range


@dataclass(frozen=True)
class _Source:
    """A file's loops and calls."""

    loops: tuple[_Loop, ...]
    calls: tuple[_Call, ...]
    functions: Mapping[range, str]
    """The names of functions, by their lines."""

    def around(self, line: int) -> list[_Loop]:
        """The loops that a line stands in, the outer ones first."""
        return sorted((loop for loop in self.loops if line in loop.lines), key=lambda loop: loop.lines.start)

    def scope_of(self, line: int) -> range:
        """The innermost function that it stands in."""
        functions = (function for function in self.functions if line in function)
        return max(functions, key=lambda function: function.start, default=_WHOLE_FILE)


@cache
def _read(file: str) -> _Source | None:
    """A file; None where it cannot be read as the script that ran."""
    tree = parsed(file)
    if tree is None:
        return None
    reader = _Reader(file)
    try:
        reader.visit(tree)
    except RecursionError:
        return None
    return _Source(tuple(reader.loops), tuple(reader.calls), reader.functions)


class _Reader(ast.NodeVisitor):
    """Finds the loops of a module and how they are left."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.loops: list[_Loop] = []
        self.calls: list[_Call] = []
        self.functions: dict[range, str] = {}
        self._scope = _WHOLE_FILE
        self._around: list[list[int]] = []
        """Of the loops around, outermost first, the branches found so far."""
        self._branch: int | None = None

    def _of_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        kept = self._scope, self._around, self._branch
        self._scope, self._around, self._branch = lines(node), [], None
        self.functions[self._scope] = node.name
        self.generic_visit(node)
        self._scope, self._around, self._branch = kept

    def _of_loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        kept, self._branch = self._branch, None
        branches: list[int] = []
        self._around.append(branches)
        self.generic_visit(node)
        self._around.pop()
        self._branch = kept
        if isinstance(node, ast.While) and not isinstance(node.test, ast.Constant):
            branches.append(node.lineno)
        function = self.functions.get(self._scope, "<module>")
        self.loops.append(_Loop(self._file, function, lines(node), tuple(branches)))

    def visit_Call(self, node: ast.Call) -> None:
        """A function of the file's own is known by its name alone."""
        self.calls.append(_Call(called_name(node), node.lineno, self._scope))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """What stands below it is under its condition."""
        kept, self._branch = self._branch, node.lineno
        self.generic_visit(node)
        self._branch = kept

    def visit_Break(self, node: ast.Break) -> None:
        """It leaves the innermost loop."""
        self._around[-1].append(self._branch or node.lineno)

    def visit_Return(self, node: ast.Return) -> None:
        """It leaves all of them."""
        for branches in self._around:
            branches.append(self._branch or node.lineno)

    visit_FunctionDef = visit_AsyncFunctionDef = _of_function  # noqa: N815 - ast's names
    visit_For = visit_AsyncFor = visit_While = _of_loop  # noqa: N815
