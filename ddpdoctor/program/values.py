"""What each value is made of, one step: the edges of the graph of a program's expressions and definitions.

An edge leads from a value to what it is made of. Along a COPY it is the same object, so that classes and functions
are found along copies alone; a PART is an operand or an argument; a CHOICE is the condition that decides which of
several definitions holds. Inside a function that was entered through a call, a parameter is what that call gives.
"""

import ast
import builtins
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ddpdoctor.program import known
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.files import (
    COMPREHENSIONS,
    FUNCTIONS,
    LEAVES,
    File,
    argument,
    arguments,
    name_called,
    own_nodes,
    returns_its_object,
)
from ddpdoctor.program.index import Entity, Leaf, Made, Point, answered_once
from ddpdoctor.program.known import Origin
from ddpdoctor.program.rank_numbers import RankNumbers
from ddpdoctor.recorder import launchers

_ONE_OF = (ast.Tuple, ast.List, ast.Set)
_NO_RANK = {("NotEq", "-1"), ("Eq", "-1"), ("Gt", "-1"), ("GtE", "0"), ("Lt", "0")}
"""Comparisons that come out alike for all ranks."""


class Values(RankNumbers):
    """The edges of the graph of one program."""

    def __init__(self, files: Mapping[str, File], called: Mapping[tuple[str, int], Sequence[str]]) -> None:
        super().__init__(files, called)
        self._compared: set[ast.Compare] = set()

    @abstractmethod
    def origins(self, point: Point) -> dict[Leaf, list[Point]]:
        """Where a value comes from, and for each the way from there to it."""

    @answered_once(Made([], [Leaf(Origin.UNKNOWN, "what it is made of itself")]))
    def made_of(self, point: Point) -> Made:
        """What a value is made of: its copies, parts and conditions, and where it begins."""
        node = point.node
        return self._defined_by(point, node) if isinstance(node, Definition) else self._computed(point, node)

    def _defined_by(self, point: Point, definition: Definition) -> Made:
        if definition.how is How.PARAMETER:
            return self._parameter(point, definition)
        if definition.how is How.GIVEN:
            return self._after_call(point, definition)
        if definition.how is How.ITERATED and definition.value is not None:
            return self._iterated(point, definition.value, definition.path)
        made = Made([*self.copies(point)])
        if definition.how is How.CHANGED and definition.value is not None:
            made.parts += [point.at(definition.value), *self._indices(point, definition)]
        if definition.how in (How.DEFINED, How.IMPORTED) and not made.parts:
            made.leaves.append(Leaf(Origin.EQUAL, definition.key))
        if definition.how is How.UNKNOWN:
            made.leaves.append(Leaf(Origin.UNKNOWN, definition.key))
        return made

    @staticmethod
    def _indices(point: Point, definition: Definition) -> list[Point]:
        target = definition.node
        return [point.at(target.slice)] if isinstance(target, ast.Subscript) else []

    def _parameter(self, point: Point, definition: Definition) -> Made:
        if self._class_of_self(definition, point.file) is not None:
            return Made([], [Leaf(Origin.EQUAL, definition.key)])
        if definition.node in self.rank_ends() or self.is_number_of_spawned(definition, point.file):
            return Made([], [Leaf(Origin.RANK, definition.key)])
        if self._is_batch(definition, point.file):
            return Made([], [Leaf(Origin.OWN_DATA, definition.key)])
        if self._hook_type(definition, point.file):
            return Made([], [Leaf(Origin.EQUAL, definition.key)])
        found = [*self.copies(point), *(it for _, it in self.extras(point, definition))]
        function = point.file.parents[point.file.parents[definition.node]]
        entered = isinstance(function, FUNCTIONS) and self.callers(function)
        known_calls = point.context is not None or entered
        return Made(found, [] if found and known_calls else [Leaf(Origin.UNKNOWN, definition.key)])

    def _after_call(self, point: Point, definition: Definition) -> Made:
        """What a variable holds after a call that was given it."""
        call = definition.value
        assert isinstance(call, ast.Call)
        before = Made(found := [*self.copies(point)], [] if found else [Leaf(Origin.UNKNOWN, definition.key)])
        at_call = point.at(call)
        for referent in self.called(at_call):
            if isinstance(referent, str):
                reduces = referent in known.REDUCES and definition.node in _reduced(call, referent)
            else:
                reduces = self._reduces(at_call, referent, definition.node)
            if reduces:
                name = referent if isinstance(referent, str) else name_called(call)
                return Made([], [Leaf(Origin.REDUCED, name)])
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if definition.node is owner and (_changes(call) or name_called(call) == "manual_seed"):
            before.parts += [point.at(it) for it in arguments(call)]
        return before

    def _reduces(self, call: Point, called: Entity, given: ast.AST) -> bool:
        """Whether a function of the program makes what it is given the same on all ranks, in place."""
        function = called.node
        if not isinstance(function, FUNCTIONS):
            return False
        end, key = self.chains(function, called.file).end, ("reduces", function)
        if end is None or key in self._under_way:
            return False
        self._under_way.add(key)
        try:
            for parameter in (*function.args.posonlyargs, *function.args.args):
                point = self.argument_of(call, function, parameter)
                if point is not None and point.node is given:
                    last = end.get(parameter.arg, frozenset())
                    return bool(last) and all(self._is_reduced(Point(it, called.file), 0) for it in last)
            return False
        finally:
            self._under_way.discard(key)

    def _is_reduced(self, point: Point, depth: int) -> bool:
        """Whether the calls that a parameter was given to made it equal."""
        definition = point.node
        if not isinstance(definition, Definition) or definition.how is not How.GIVEN or depth > 20:
            return False
        made = self.made_of(point)
        if made.leaves:
            return any(leaf.origin is Origin.REDUCED for leaf in made.leaves)
        before = definition.before
        return bool(before) and all(self._is_reduced(point.at(it), depth + 1) for it in before)

    def _iterated(self, point: Point, iterated: ast.expr, path: tuple[int, ...]) -> Made:
        """The element of a loop."""
        made = Made()
        for end in self.ends(point.at(iterated)):
            node = end.node
            names = self._library_names(end, node) if isinstance(node, ast.Call) else set()
            if names & known.LOADERS:
                made.leaves.append(Leaf(Origin.OWN_DATA, next(iter(names & known.LOADERS))))
            elif "builtins.enumerate" in names and isinstance(node, ast.Call) and node.args:
                if path[:1] == (0,):
                    made.leaves.append(Leaf(Origin.EQUAL, "enumerate"))
                else:
                    inner = self._iterated(end, node.args[0], path[1:])
                    made.parts += inner.parts
                    made.leaves += inner.leaves
            elif "builtins.zip" in names and isinstance(node, ast.Call) and path and path[0] < len(node.args):
                inner = self._iterated(end, node.args[path[0]], path[1:])
                made.parts += inner.parts
                made.leaves += inner.leaves
            elif path[:1] == (0,) and self._has_constant_keys(end):
                made.leaves.append(Leaf(Origin.EQUAL, "items"))
            else:
                made.parts.append(end)
        return made

    def _has_constant_keys(self, items: Point) -> bool:
        """Whether it is what ``items()`` gives of a dictionary that is written down with its keys."""
        match items.node:
            case ast.Call(func=ast.Attribute(attr="items", value=held)):
                return any(key is not None for key, _ in self.contents(items.at(held)))
        return False

    def _library_names(self, point: Point, call: ast.Call) -> set[str]:
        return {it for it in self.called(point) if isinstance(it, str)}

    def _computed(self, point: Point, node: ast.AST) -> Made:
        if node in self.rank_ends():
            return Made([], [Leaf(Origin.RANK, ast.unparse(node))])
        match node:
            case ast.Constant():
                made = Made([], [Leaf(Origin.EQUAL, repr(node.value))])
            case ast.Name():
                made = self._of_variable(point, node)
            case ast.Attribute():
                made = self._of_attribute(point, node)
            case ast.Subscript():
                made = self._of_subscript(point, node)
            case ast.Call():
                made = self._of_call(point, node)
            case ast.Compare() if self._asks_if_over(point, node):
                made = Made([], [Leaf(Origin.EQUAL, "next")])
            case ast.Lambda():
                made = Made([], [Leaf(Origin.EQUAL, "lambda")])
            case ast.Compare() if self._asks_for_a_job(point, node):
                made = Made([], [Leaf(Origin.EQUAL, ast.unparse(node))])
            case _:
                parts = [point.at(it) for it in _operands(node)]
                # What a comprehension takes from a DataLoader is in its element.
                loaders = isinstance(node, COMPREHENSIONS)
                made = Made([it for it in parts if not (loaders and self._is_loader(it))])
        return made

    def _asks_if_over(self, point: Point, node: ast.Compare) -> bool:
        """Whether it asks if ``next(batches, None)`` gave None: where the batches of a loader end."""
        if not all(getattr(it, "value", node) is None for it in node.comparators):
            return False
        ends = [it for it in self.ends(point.at(node.left)) if isinstance(it.node, ast.Call)]
        return bool(ends) and all(
            "builtins.next" in self.called(it) and self._is_loader(it.at(it.node.args[0]))  # type: ignore[union-attr]
            for it in ends
        )

    def _asks_for_a_job(self, point: Point, node: ast.Compare) -> bool:
        """Whether a rank is compared so that all ranks give the same: no rank is -1, which stands for no job."""
        asked = (type(node.ops[0]).__name__, ast.unparse(node.comparators[0]))
        if len(node.ops) > 1 or asked not in _NO_RANK or node in self._compared:
            return False
        self._compared.add(node)
        try:
            return {leaf.origin for leaf in self.origins(point.at(node.left))} <= {Origin.RANK, Origin.EQUAL}
        finally:
            self._compared.discard(node)

    def _of_variable(self, point: Point, node: ast.Name) -> Made:
        copies = self.copies(point)
        if not copies:
            origin = Origin.EQUAL if hasattr(builtins, node.id) else Origin.UNKNOWN
            return Made([], [Leaf(origin, node.id)])
        return Made([*copies, *self._choices(point, node)])

    def _choices(self, point: Point, use: ast.expr) -> list[Point]:
        """The conditions that decide which of several definitions of a variable holds."""
        own, others = self._reaching(use, point.file)
        if len(own) + (others and not isinstance(use, ast.Name)) < 2:
            return []
        own = [it for it in own if self._may_change(point, it)]
        around = set(point.file.above(use))
        tests = [
            above.test
            for definition in own
            for above in point.file.above(definition.node)
            if isinstance(above, ast.If | ast.While) and above not in around
        ]
        return [point.at(test) for test in dict.fromkeys(tests)]

    def _may_change(self, point: Point, definition: Definition) -> bool:
        """Whether a definition gives a variable another value: a call that is only given it mostly does not."""
        call = definition.value
        if definition.how is not How.GIVEN or not isinstance(call, ast.Call):
            return True
        if isinstance(call.func, ast.Attribute) and call.func.value is definition.node:
            return _changes(call)
        return any(it in known.REDUCES for it in self.called(point.at(call)) if isinstance(it, str))

    def _of_attribute(self, point: Point, node: ast.Attribute) -> Made:
        copies = self.copies(point)
        names = [it for it in self._names_of(point) if isinstance(it, str)]
        origins = [Leaf(origin, name) for name in names if (origin := known.origin_of(name))]
        is_rank = any((name, node.attr) in self.rank_ends() for name in self.types(point.at(node.value)))
        if origins or is_rank:
            return Made([], origins or [Leaf(Origin.RANK, ast.unparse(node))])
        made = Made([*copies, *self._choices(point, node), *self._choices_elsewhere(point, copies)])
        of_own = any(isinstance(it, Entity) for it in self.types(point.at(node.value)))
        if not copies and node.attr in self.buffers(point.at(node.value)):
            made.leaves.append(Leaf(Origin.EQUAL, node.attr))  # which wrapping sends to all ranks
        elif not copies and of_own:
            made.leaves.append(Leaf(Origin.UNKNOWN, ast.unparse(node)))
        elif not copies:
            made.parts.append(point.at(node.value))
        return made

    def _choices_elsewhere(self, point: Point, copies: Iterable[Point]) -> Iterator[Point]:
        """The conditions under which other functions set an attribute."""
        home = point.file.scopes[point.node] if isinstance(point.node, ast.AST) else None
        for copy in copies:
            definition, file = copy.node, copy.file
            if isinstance(definition, Definition) and "." in definition.key:
                leading = file.leading_to(definition.node) if file.scopes[definition.node] is not home else ()
                yield from (
                    copy.at(it.test) for it, _, end in leading if end is None or isinstance(end, LEAVES)
                )

    def _of_subscript(self, point: Point, node: ast.Subscript) -> Made:
        if "os.environ" in self.referents(point.at(node.value)):
            return Made([], [_variable(node.slice)])
        copies = self.copies(point)
        if copies and not self._is_reduced_container(point.at(node.value)):
            own, _ = self._reaching(node, point.file)
            of_whole = any(getattr(it.node, "how", None) is How.ELSEWHERE for it in copies)
            changed = bool(own) and all(it.how is How.CHANGED for it in own)
            of_whole |= changed and not self._held_at(point, node)
            whole = [point.at(node.value)] if of_whole else []
            return Made([*copies, *whole, *self._choices(point, node)])
        return Made([point.at(node.value), point.at(node.slice)])

    def is_reduced(self, point: Point) -> bool:
        """Whether it is a variable, or a container, that a collective was given."""
        node = point.node
        if not isinstance(node, Definition) or node.how is not How.GIVEN:
            return False
        return any(it.origin is Origin.REDUCED for it in self.made_of(point).leaves)

    def _is_reduced_container(self, point: Point) -> bool:
        """Whether a collective wrote into a list since it was made."""
        waiting, visited = [point], {point}
        for now in waiting:  # which grows
            if self.is_reduced(now):
                return True
            copies = [it for it in dict.fromkeys(self.copies(now)) if it not in visited]
            waiting += copies
            visited.update(copies)
        return False

    def _of_call(self, point: Point, node: ast.Call) -> Made:
        made = Made([*self.copies(point)])
        if made.parts and returns_its_object(node):
            return made
        for referent in self.called(point):
            if isinstance(referent, str):
                self._of_library(point, node, referent, made)
            elif isinstance(referent.node, FUNCTIONS) and referent.node.name != "__init__":
                made.parts += [Point(it, referent.file) for it in tests_of_returns(referent)]
            else:
                made.leaves.append(Leaf(Origin.EQUAL, getattr(referent.node, "name", "")))
        if not made.parts and not made.leaves:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            made.parts += [point.at(it) for it in (owner, *arguments(node))]
        return made

    def _of_library(self, point: Point, node: ast.Call, name: str, made: Made) -> None:
        origin = known.origin_of(name)
        if name in ("os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault"):
            made.leaves.append(_variable(node.args[0] if node.args else None))
        elif origin is Origin.CLOCK and any(not isinstance(it, ast.Constant) for it in node.args):
            made.parts += [point.at(it) for it in node.args]
        elif origin is not None:
            generator = argument(node, None, "generator") if origin is Origin.RANDOM else None
            made.parts += [point.at(generator)] if generator is not None else []
            made.leaves += [Leaf(origin, name)] if generator is None else []
        elif name in known.REDUCES or name in known.KINDS:
            made.leaves.append(Leaf(Origin.EQUAL, name))
        elif name in known.LOADERS:
            made.leaves.append(Leaf(Origin.UNKNOWN, name))
        elif name == "builtins.len" and node.args and self._is_loader(point.at(node.args[0])):
            made.leaves.append(Leaf(Origin.EQUAL, name))
        elif name == "builtins.next" and node.args:
            inner = self._iterated(point, node.args[0], ())
            made.parts += inner.parts
            made.leaves += inner.leaves
        elif name not in known.RETURNS_ITS_ARGUMENTS:
            is_method = isinstance(node.func, ast.Attribute) and not self._is_of_module(point, node)
            owner = [node.func.value] if is_method and isinstance(node.func, ast.Attribute) else []
            made.parts += [point.at(it) for it in (*owner, *arguments(node))]
            if not known.is_pure(name):
                made.leaves.append(Leaf(Origin.UNKNOWN, name))

    def _is_loader(self, point: Point) -> bool:
        """Whether it is a DataLoader, which gives each rank as many batches or lets the ranks wait for each other."""
        return not self.types(point).isdisjoint(known.LOADERS)


def tests_of_returns(called: Entity) -> list[ast.expr]:
    """The conditions that decide what a function returns."""
    function = called.node
    if not isinstance(function, FUNCTIONS):
        return []
    returns = [it for it in own_nodes(function) if isinstance(it, ast.Return)]
    if len(returns) < 2:
        return []
    above = (it for end in returns for it in called.file.above(end) if isinstance(it, ast.If | ast.While))
    return list(dict.fromkeys(it.test for it in above if called.file.scopes[it] is function))


def _operands(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [node.elt, *(part for it in node.generators for part in (it.iter, *it.ifs))]
    if isinstance(node, ast.DictComp):
        return [node.key, node.value, *(part for it in node.generators for part in (it.iter, *it.ifs))]
    if isinstance(node, ast.Compare):  # ``x is None`` asks for the kind of x
        return [node.left, *(it for it in node.comparators if getattr(it, "value", node) is not None)]
    parts = (it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr))
    return [it for it in parts if not isinstance(getattr(it, "ctx", None), ast.Store)]


def _variable(key: ast.AST | None) -> Leaf:
    """What an environment variable tells."""
    name = str(key.value) if isinstance(key, ast.Constant) else ""
    if name in launchers.RANK_VARIABLES:
        return Leaf(Origin.RANK, f"os.environ[{name!r}]")
    origin = Origin.EQUAL if name in launchers.EQUAL_VARIABLES else Origin.ENVIRONMENT
    return Leaf(origin, f"os.environ[{name!r}]")


def _reduced(call: ast.Call, name: str) -> list[ast.AST]:
    """The variables that a collective makes equal: its tensor, or those in the list of them."""
    given = argument(call, *known.REDUCES[name])
    return [] if given is None else [given, *(given.elts if isinstance(given, _ONE_OF) else ())]


def _changes(call: ast.Call) -> bool:
    """Whether a method puts what it is given into its object."""
    name = name_called(call)
    return name in known.CHANGES or (name.endswith("_") and not name.startswith("_"))
