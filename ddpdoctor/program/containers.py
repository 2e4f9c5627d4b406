"""What lists, dictionaries and keyword arguments hold, wherever it was put in."""

import ast
from abc import abstractmethod
from collections.abc import Iterator, Sequence

from ddpdoctor.program.calls import Calls
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.files import FUNCTIONS, dotted, held_by, name_called
from ddpdoctor.program.index import Point, answered_once, puts_in

Item = tuple[object, Point]
"""A constant key or position, or None where that is not known, and what is held there."""
_MERGES = frozenset({"extend", "extendleft", "update"})
"""Methods that put in what another container holds."""
_COPIES = frozenset(
    {
        *(f"builtins.{it}" for it in ("list", "tuple", "set", "frozenset", "sorted", "dict")),
        *("collections.deque", "collections.OrderedDict", "collections.defaultdict"),
        *("types.SimpleNamespace", "argparse.Namespace", "types.MappingProxyType"),
    }
)
"""What makes a container of what another one holds."""


class Containers(Calls):
    """The containers of one program, which need to know which values are the same object."""

    @abstractmethod
    def copies(self, point: Point) -> list[Point]: ...

    @abstractmethod
    def is_reduced(self, point: Point) -> bool: ...

    @answered_once([])
    def contents(self, point: Point) -> list[Item]:
        """What is put into a container."""
        return [*dict.fromkeys(self._find_contents(point))]

    def _find_contents(self, point: Point) -> Iterator[Item]:
        waiting, visited = [point], {point}
        for now in waiting:  # which grows
            of_each = isinstance(now.node, Definition) and dotted(now.node.node) != now.node.key
            if of_each and self.is_reduced(now):
                yield None, now
                continue
            items, merged = self._held(now)
            yield from items
            more = [it for it in (*merged, *self.copies(now)) if it not in visited]
            waiting += dict.fromkeys(more)
            visited.update(more)

    def _held(self, point: Point) -> tuple[list[Item], list[Point]]:
        """What one expression or definition puts in, and the containers of which it takes everything."""
        node = point.node
        items: list[tuple[object, ast.expr]] = []
        merged: list[ast.expr] = []
        match node:
            case Definition():
                return self._put_in(point, node)
            case ast.List() | ast.Tuple() | ast.Set():
                items = [(n, it) for n, it in enumerate(node.elts) if not isinstance(it, ast.Starred)]
                merged = [it.value for it in node.elts if isinstance(it, ast.Starred)]
            case ast.Dict():
                pairs = [*zip(node.keys, node.values, strict=True)]
                items += [(_constant(name), it) for name, it in pairs if name is not None]
                merged = [it for name, it in pairs if name is None]
            case ast.DictComp():
                items.append((None, node.value))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                items.append((None, node.elt))
            case ast.BinOp(op=ast.Add() | ast.BitOr()):
                merged += [node.left, node.right]
            case ast.Call(func=ast.Attribute(attr="copy" | "values", value=container)):
                merged.append(container)
            case ast.Call() if not _COPIES.isdisjoint(self.referents(point.at(node.func))):
                items += [(it.arg, it.value) for it in node.keywords if it.arg]
                merged += [*node.args, *(it.value for it in node.keywords if it.arg is None)]
        return [(key, point.at(it)) for key, it in items], [point.at(it) for it in merged]

    def _put_in(self, point: Point, definition: Definition) -> tuple[list[Item], list[Point]]:
        """What a definition puts into the variable that it changes."""
        value, target = definition.value, definition.node
        items: list[tuple[object, ast.expr]] = []
        merged: list[ast.expr] = []
        if definition.how is How.PARAMETER:
            return self.extras(point, definition), []
        if definition.how is How.CHANGED and value is not None:
            if isinstance(target, ast.Subscript):
                if not isinstance(point.file.parents[target], ast.AugAssign):
                    return [(_constant(target.slice), point.at(value))], []
                # Of ``held[key] += value`` an element is neither what it was nor the value.
                element = self.chains(point.file.scopes[target], point.file).element(target)
                return [(_constant(target.slice), point.at(element))] if element else [], []
            merged = [value]
        elif definition.how is How.GIVEN and isinstance(value, ast.Call) and puts_in(value):
            of_element = isinstance(value.func, ast.Attribute) and value.func.value is not target
            if name_called(value) in _MERGES and not of_element:
                items = [(it.arg, it.value) for it in value.keywords if it.arg]
                merged = value.args
            elif not of_element or held_by(value.func.value) is target:  # type: ignore[attr-defined]
                named = name_called(value) == "setdefault" and not of_element and value.args
                items = [(_constant(value.args[0]) if named else None, it) for it in value.args[-1:]]
        return [(key, point.at(it)) for key, it in items], [point.at(it) for it in merged]

    def extras(self, point: Point, definition: Definition) -> list[Item]:
        """What callers give as ``*args`` or ``**settings``."""
        function = point.file.parents[point.file.parents[definition.node]]
        given = getattr(function, "args", None)
        if not isinstance(function, FUNCTIONS) or not isinstance(given, ast.arguments):
            return []
        is_named = definition.node is given.kwarg
        if not is_named and definition.node is not given.vararg:
            return []
        known = {it.arg for it in (*given.args, *given.kwonlyargs)}
        context = point.context
        calls = (
            [Point(context.call, context.file, context.outer)]
            if context is not None
            else [Point(call, file) for call, file in self.callers(function)]
        )
        found: list[Item] = []
        for call in calls:
            node = call.node
            assert isinstance(node, ast.Call)
            if is_named:
                named = [it for it in node.keywords if it.arg not in known]
                found += [(it.arg, call.at(it.value)) for it in named if it.arg]
                found += [item for it in named if it.arg is None for item in self.contents(call.at(it.value))]
            else:
                first = len(given.posonlyargs) + len(given.args) - self._is_bound(call, node, function)
                found += [(number, call.at(it)) for number, it in enumerate(node.args[first:])]
        return found

    def elements(self, points: list[Point], path: Sequence[object]) -> list[Point]:
        """The elements at some positions, one inside the other, of what these are."""
        for key in path:
            points = [element for point in points for element in self._element(point, key)]
        return points

    def _element(self, point: Point, key: object) -> list[Point]:
        """The element of a container by a constant; the container where it is not known."""
        return self.held_at(point, key) or self.ends(point)

    def held_at(self, point: Point, key: object) -> list[Point]:
        """What a container holds at a constant, as far as it is written somewhere."""
        items = self.contents(point)
        if isinstance(key, int) and key < 0:
            key += len(items)
        found = [it for name, it in items if name == key and type(name) is type(key)]
        found = found or [it for name, it in items if name is None]
        for end in () if found else self.ends(point):
            node = end.node
            stands = isinstance(node, ast.Call) and self._stands_for_arguments(end, node)
            if isinstance(node, ast.Call) and stands and isinstance(key, int) and key < len(node.args):
                found.append(end.at(node.args[key]))
        return found

    def gone_over(self, iterated: Point, path: Sequence[int]) -> Iterator[tuple[Point, Sequence[int]]]:
        """What ``enumerate``, ``zip`` and progress bars go over, and the position of a variable in its elements."""
        is_itself = True
        for end in self.ends(iterated):
            node = end.node
            names = self.called(end) if isinstance(node, ast.Call) and node.args else ()
            if not isinstance(node, ast.Call) or not names:
                continue
            inner, rest = node.args[:1], path[1:]
            if "builtins.enumerate" in names:
                inner = inner if path[:1] == (1,) else []
            elif "builtins.zip" in names:
                inner = node.args[path[0] : path[0] + 1] if path else []
            elif self._stands_for_arguments(end, node):
                rest = path
            else:
                continue
            is_itself = False
            for it in inner:
                yield from self.gone_over(end.at(it), rest)
        if is_itself:
            yield iterated, path

    def turns(self, iterated: Point, path: Sequence[int]) -> list[Point]:
        """What a loop's variable is, where containers hold it; ``path`` is its position in the tuple of a turn."""
        found: list[Point] = []
        for over, rest in self.gone_over(iterated, path):
            for end in self.ends(over) if rest[:1] == (1,) else ():
                match end.node:
                    case ast.Call(func=ast.Attribute(attr="items", value=held)):
                        found += self.elements([it for _, it in self.contents(end.at(held))], rest[1:])
            found = found or self.elements([it for _, it in self.contents(over)], rest)
        return found


def _constant(key: ast.expr) -> object:
    return key.value if isinstance(key, ast.Constant) else None
