"""Where values come from: searches through the graph of :mod:`values`, built as far as it is asked for."""

import ast
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from ddpdoctor.program.calls import MOST_CALLS
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.files import FUNCTIONS, Function
from ddpdoctor.program.index import Context, Entity, Leaf, Point
from ddpdoctor.program.known import Origin
from ddpdoctor.program.objects import MOST_POINTS
from ddpdoctor.program.values import Values


class Flow(Values):
    """The graph of one program."""

    def walk(self, point: Point, hides: Callable[[Point], bool]) -> Iterator[Point]:
        """Everything that a value is made of, the nearest first: also in constructors, in functions that were given a
        variable to change, and what a loop goes over; not what that is made of which ``hides`` it."""
        return self._spread({point: None}, hides, lambda it: (*self.made_of(it).parts, *self._inside(it)))

    def _spread(
        self,
        came: dict[Point, Point | None],
        hides: Callable[[Point], bool],
        parts: Callable[[Point], Iterable[Point]],
    ) -> Iterator[Point]:
        """What there is beyond some values, the nearest first; ``came`` is told by way of which each was come to."""
        waiting = deque(came)
        while waiting and len(came) <= MOST_POINTS:
            now = waiting.popleft()
            yield now
            for part in () if hides(now) else parts(now):
                if part not in came:
                    came[part] = now
                    waiting.append(part)

    def _inside(self, point: Point) -> Iterator[Point]:
        node = point.node
        if isinstance(node, Definition) and node.value is not None:
            if node.how is How.ITERATED:
                yield from self.ends(point.at(node.value))
            elif node.how is How.GIVEN:
                yield from self._changed(point.at(node.value), node.node)
        elif isinstance(node, ast.Call):
            yield from self._kept(point, node)

    def _changed(self, call: Point, given: ast.AST) -> Iterator[Point]:
        """What a variable is after the program's functions that a call gave it to."""
        for function, called, inside in self._entered(call):
            for parameter in (*function.args.posonlyargs, *function.args.args):
                argued = self.argument_of(call, function, parameter)
                if argued is not None and argued.node is given:
                    last = (self.chains(function, called.file).end or {}).get(parameter.arg, frozenset())
                    yield from (Point(it, called.file, inside) for it in last if it.how is not How.PARAMETER)

    def _kept(self, point: Point, call: ast.Call) -> Iterator[Point]:
        """What an object keeps of those that construct it; and what the next element is one of."""
        if "builtins.next" in self.called(point) and call.args:
            yield point.at(call.args[0])
        for function, called, inside in self._entered(point):
            if function.name == "__init__" and function.args.args:
                prefix = f"{function.args.args[0].arg}."
                for key, definitions in (self.chains(function, called.file).end or {}).items():
                    if key.startswith(prefix):
                        yield from (Point(it, called.file, inside) for it in definitions)

    def _entered(self, call: Point) -> Iterator[tuple[Function, Entity, Context]]:
        """The functions of the program that a call enters."""
        depth = call.context.depth if call.context else 0
        node = call.node
        for called in self.called(call) if isinstance(node, ast.Call) and depth < MOST_CALLS else ():
            if isinstance(called, Entity) and isinstance(called.node, FUNCTIONS):
                assert isinstance(node, ast.Call)
                yield called.node, called, Context(node, call.file, call.context, depth + 1)

    def origins(
        self, point: Point, hides: Callable[[Point], bool] = lambda _: False
    ) -> dict[Leaf, list[Point]]:
        """Where a value comes from, and for each the way from there to it, in the order in which values were made; not
        where a value comes from that ``hides`` it."""
        return self._search(point, hides)[0]

    def only(self, point: Point, allowed: Collection[Origin]) -> bool:
        """Whether a value comes from nothing else: looked for no further than to the first that is something else."""
        came: dict[Point, Point | None] = {point: None}
        for now in self._spread(came, lambda _: False, lambda it: self.made_of(it).parts):
            if any(leaf.origin not in allowed for leaf in self.made_of(now).leaves):
                return False
        return len(came) <= MOST_POINTS

    def makers(self, point: Point) -> list[Point]:
        """Everything that a value is made of, as far as it may differ between ranks, and the value itself."""
        return self._search(point)[1]

    def _search(
        self, point: Point, hides: Callable[[Point], bool] = lambda _: False
    ) -> tuple[dict[Leaf, list[Point]], list[Point]]:
        came: dict[Point, Point | None] = {point: None}
        found = dict[Leaf, list[Point]]()
        now = point
        for now in self._spread(came, hides, lambda it: self.made_of(it).parts):
            for leaf in () if hides(now) else self.made_of(now).leaves:
                if leaf not in found:  # nobody asks how a value came that is the same everywhere
                    found[leaf] = [now] if leaf.origin is Origin.EQUAL else _way(came, now)
        if len(came) > MOST_POINTS:
            found.setdefault(Leaf(Origin.UNKNOWN, "too much to read"), _way(came, now))
        return found, list(came)


def _way(came: Mapping[Point, Point | None], end: Point) -> list[Point]:
    way, now = [], end
    while now is not None:
        way.append(now)
        now = came[now]  # type: ignore[assignment]
    return way
