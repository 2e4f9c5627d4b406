"""The files of the user's program, parsed: what each statement and expression stands in, and what calls give and
functions take and return, by syntax alone."""

import ast
import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeAlias

from ddpdoctor.model import Where
from ddpdoctor.program import known

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
"""Statements behind which nothing of their block is run."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
TRIES = (ast.Try, getattr(ast, "TryStar", ast.Try))  # the second is new in Python 3.11
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Loop: TypeAlias = ast.For | ast.AsyncFor | ast.While
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef | ast.Module
"""What has variables of its own."""
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)
_OUTSIDE = ("decorator_list", "bases", "keywords", "returns")
"""Parts of a definition that are evaluated where it stands."""
_BLOCKS = ("body", "orelse", "finalbody")
_MOST_FILES = 300
LARGEST = 1 << 20
"""Bytes of a file that is read, and so more than its lines."""


@dataclass(eq=False)
class File:
    """One file of the program."""

    path: str
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    """The function, class or module in which each node is evaluated."""
    calls: list[ast.Call] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    classes: list[ast.ClassDef] = field(default_factory=list)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    stores: list[ast.Attribute] = field(default_factory=list)
    """The attributes that are assigned."""
    elements: list[ast.Subscript] = field(default_factory=list)
    """The elements that are assigned."""
    _places: dict[int, Where] = field(default_factory=dict)
    _statements_at: dict[int | None, list[ast.stmt]] = field(default_factory=dict)
    _functions_at: dict[int, Function] = field(default_factory=dict)
    """The innermost function in whose body each line stands."""

    def __post_init__(self) -> None:
        waiting: list[tuple[ast.AST, Scope]] = [(self.tree, self.tree)]
        while waiting:
            node, scope = waiting.pop()
            self.scopes[node] = scope
            self._sort(node)
            inside = node if isinstance(node, _SCOPES) else scope
            for name, value in ast.iter_fields(node):
                if name in _BLOCKS and isinstance(value, list):
                    value[:] = _without_matches(value)
                around = scope if name in _OUTSIDE else inside
                for child in value if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST):
                        self.parents[child] = node
                        waiting.append((child, around))
        for kind in (self.calls, self.functions, self.classes, self.imports, self.stores):
            kind.sort(key=lambda it: (it.lineno, it.col_offset))
        for function in self.functions:
            self._functions_at |= dict.fromkeys(lines(*function.body), function)

    def _sort(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            self.calls.append(node)
        elif isinstance(node, FUNCTIONS):
            self.functions.append(node)
        elif isinstance(node, ast.ClassDef):
            self.classes.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.append(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            self.stores.append(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            self.elements.append(node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, the innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def leading_to(self, node: ast.AST) -> Iterator[tuple[ast.If | ast.While, bool, ast.stmt | None]]:
        """The conditions that may decide whether a node of a function is reached, the innermost first: whether each has
        to hold, and the end of its block where that stands ahead of the node, and may be the way past it."""
        while (above := self.parents.get(node)) is not None and not isinstance(node, FUNCTIONS):
            for name, block in ast.iter_fields(above):
                if not isinstance(block, list) or node not in block:
                    continue
                for it in reversed(block[: block.index(node)]):
                    blocks = ((True, it.orelse), (False, it.body)) if isinstance(it, ast.If) else ()
                    yield from ((it, holds, inner[-1]) for holds, inner in blocks if inner)
                if isinstance(above, ast.If | ast.While):
                    yield above, name == "body", None
            node = above

    def class_of(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose method a function is."""
        parent = self.parents.get(function)
        return parent if isinstance(parent, ast.ClassDef) and isinstance(function, FUNCTIONS) else None

    def function_at(self, line: int | None) -> Function | ast.Module:
        """The innermost function in whose body a line stands; the module where it stands in none."""
        return self._functions_at.get(line or 0, self.tree)

    def statements_at(self, line: int | None) -> list[ast.stmt]:
        """The statements around a line, the outermost first."""
        if line not in self._statements_at:
            found = self._statements_at[line] = list[ast.stmt]()
            block: list[ast.AST] = [*self.tree.body]
            while inner := next((it for it in block if line in lines(it)), None):
                found += [inner] if isinstance(inner, ast.stmt) else []
                block = [it for it in ast.iter_child_nodes(inner) if hasattr(it, "lineno")]
        return self._statements_at[line]

    def where(self, node: ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.alias) -> Where:
        """Its line."""
        line = node.lineno
        if line not in self._places:
            self._places[line] = Where(self.path, line, self.qualified_name(self.function_at(line)))
        return self._places[line]

    def qualified_name(self, scope: ast.AST) -> str:
        """The name of a function with what it is defined in, as Python has it."""
        parts = [name_of_scope(scope)]
        for around in self.above(scope):
            if isinstance(around, (*FUNCTIONS, ast.ClassDef)):
                parts.append(f"{around.name}{'' if isinstance(around, ast.ClassDef) else '.<locals>'}")
        return ".".join(reversed(parts))


def stamp(path: str) -> tuple[int, int] | None:
    """What changes with the content of a file; None where there is none."""
    try:
        now = os.stat(path)  # noqa: PTH116 - asked for each question about a program
    except OSError:
        return None
    return now.st_mtime_ns, now.st_size


def read(path: str) -> File | None:
    """A file; None where it cannot be read as the script that ran."""
    now = stamp(path)
    return None if now is None else _read(path, Path.cwd(), now)


@cache
def _read(path: str, _folder: Path, now: tuple[int, int]) -> File | None:
    try:
        return parse(path, Path(path).read_bytes()) if now[1] <= LARGEST else None
    except OSError:
        return None


def parse(path: str, raw: bytes) -> File | None:
    """A file with this content; None where that cannot be parsed."""
    try:
        return File(path, ast.parse(raw))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _as_ifs(node: ast.Match) -> list[ast.stmt]:
    """What a ``match`` by values stands for, ``if`` and ``elif``; itself where it takes its subject apart."""
    tests = [_test(node.subject, it.pattern, it.guard) for it in node.cases]
    evaluated = sum(not isinstance(it, ast.Constant) for it in tests)
    if None in tests or (evaluated > 1 and any(isinstance(it, ast.Call) for it in ast.walk(node.subject))):
        return [node]  # its subject would be called once for each case
    block: list[ast.stmt] = []
    for case, test in reversed([*zip(node.cases, tests, strict=True)]):
        at = node if case is node.cases[0] else case.pattern
        made = ast.If(test, case.body, block)  # type: ignore[arg-type]
        made.lineno, made.col_offset = at.lineno, at.col_offset
        made.end_lineno, made.end_col_offset = node.end_lineno, node.end_col_offset
        block = case.body if isinstance(test, ast.Constant) else [ast.fix_missing_locations(made)]
    return _without_matches(block) if block is node.cases[0].body else block


def _without_matches(block: list[ast.stmt]) -> list[ast.stmt]:
    """A block with what each ``match`` by values stands for."""
    if not any(isinstance(it, ast.Match) for it in block):
        return block
    return [made for it in block for made in (_as_ifs(it) if isinstance(it, ast.Match) else [it])]


def _test(subject: ast.expr, pattern: ast.pattern, guard: ast.expr | None) -> ast.expr | None:
    """What has to be true for a case; None where it gives names to parts of the subject."""
    tests: list[ast.expr] = []
    match pattern:
        case ast.MatchValue():
            tests.append(ast.Compare(deepcopy(subject), [ast.Eq()], [pattern.value]))
        case ast.MatchSingleton():
            constant = ast.copy_location(ast.Constant(pattern.value), pattern)
            tests.append(ast.Compare(deepcopy(subject), [ast.Is()], [constant]))
        case ast.MatchOr():
            either = [test for it in pattern.patterns if (test := _test(subject, it, None))]
            if len(either) < len(pattern.patterns):
                return None
            tests.append(ast.BoolOp(ast.Or(), either))
        case ast.MatchAs(pattern=None, name=None):
            pass
        case _:
            return None
    tests += [guard] if guard else []
    if len(tests) > 1:
        tests = [ast.BoolOp(ast.And(), tests)]
    return ast.copy_location(tests[0] if tests else ast.Constant(value=True), pattern)


def modules_of(script: str) -> tuple[str, ...]:
    """The files that a script consists of: itself, and the modules beside and below it, or below the folder of the
    outermost package that it is in, that it imports."""
    files, folder = [script], Path(script).parent
    root = next((it for it in (folder, *folder.parents) if not (it / "__init__.py").is_file()), folder)
    for file in files:  # which grows
        imported = [path for place in dict.fromkeys((folder, root)) for path in _imported(Path(file), place)]
        files += dict.fromkeys(str(path) for path in imported if str(path) not in files and path.is_file())
        if len(files) > _MOST_FILES:
            break
    return tuple(files)


def _imported(path: Path, folder: Path) -> Iterator[Path]:
    """Where a file's imports may lie, seen from a folder that the script imports from."""
    file = read(str(path))
    for node in file.imports if file else ():
        if isinstance(node, ast.Import):
            names = [(folder, alias.name) for alias in node.names]
        else:
            root = path.parents[node.level - 1] if 0 < node.level <= len(path.parents) else folder
            module = f"{node.module}." if node.module else ""
            names = [(root, module[:-1]), *((root, f"{module}{alias.name}") for alias in node.names)]
        for root, name in names:
            module_path = root.joinpath(*name.split("."))
            yield from (module_path.with_suffix(".py"), module_path / "__init__.py")


def lines(*nodes: ast.AST) -> range:
    """The lines from the first to the last of these, which stand one behind the other."""
    if not nodes:
        return range(0)
    first, last = nodes[0], nodes[-1]
    start = getattr(first, "lineno", 0)
    return range(start, (getattr(last, "end_lineno", None) or start) + 1)


def name_of_scope(scope: ast.AST) -> str:
    """The name of a function; that of a module is Python's own."""
    return str(getattr(scope, "name", "<module>"))


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, or a module, and in no function or class inside."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield child
            yield from own_nodes(child)


def dotted(node: ast.AST | None) -> str | None:
    """``a`` or ``a.b.c``, and ``a["b"]``: a variable, an attribute of one, or an element by a constant."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = dotted(node.value)
        return f"{base}[{node.slice.value!r}]" if base else None
    return None


def held_by(node: ast.expr) -> ast.expr:
    """The container of ``a[i]``, ``a[i][j]`` or ``a.setdefault(i, [])``; itself where it is none of these."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in ("setdefault", "get"):
                return node
            node = node.func.value
        else:
            return node


def name_called(call: ast.Call) -> str:
    """The last part of the name of the function, or of the method, that is called; empty where it has none."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    """What a call gives as one parameter."""
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if named is None and position is not None and position < len(call.args):
        return call.args[position]
    return named


def arguments(call: ast.Call) -> list[ast.expr]:
    """What a call is given that is no place for a value."""
    return [*call.args, *(it.value for it in call.keywords if it.arg not in known.PLACES)]


def returned(function: Function) -> list[ast.expr]:
    """What a function returns or yields."""
    found = (it.value for it in own_nodes(function) if isinstance(it, ast.Return | ast.Yield | ast.YieldFrom))
    return [value for value in found if value is not None]


def default_of(function: ast.AST, parameter: ast.AST) -> list[ast.expr]:
    """The default of a parameter; nothing where it has none."""
    arguments_of = getattr(function, "args", None)
    if not isinstance(arguments_of, ast.arguments):
        return []
    positional = [*arguments_of.posonlyargs, *arguments_of.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments_of.defaults), strict=False),
        *zip(arguments_of.kwonlyargs, arguments_of.kw_defaults, strict=True),
    ]
    return [value for name, value in pairs if name is parameter and value is not None]


def is_static(function: Function) -> bool:
    """Whether it is a static method."""
    return any(dotted(it) == "staticmethod" for it in function.decorator_list)


def returns_its_object(call: ast.Call) -> bool:
    """Whether a method returns what it belongs to."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in known.RETURNS_ITS_OBJECT
