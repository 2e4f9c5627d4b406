"""What an expression is where some of the values that it comes from are tried with numbers."""

import ast
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.conditions import Condition
from ddpdoctor.program.expressions import Expression, Undecided
from ddpdoctor.program.index import Point, where_of
from ddpdoctor.program.known import MADE_BY_ONE_RANK

_MOST_STEPS = 40
_CONVERTS = frozenset({"builtins.int", "builtins.bool", "builtins.str"})


class Trial:
    """One number for each value that is tried. ``known`` says what a value is, also of one that has no copies; None of
    one that follows from others, or not at all."""

    def __init__(self, known: Callable[[Point], Any]) -> None:
        self.known = known
        self._values: dict[Point, tuple[Any, bool] | None] = {}
        """By value, with whether it is a constant; None of one that is under way, or that nothing follows for."""
        self._under_way: set[Point] = set()

    def value(self, expression: Expression, steps: int = 0) -> Any:
        """What an expression is; Undecided where that does not follow from what is tried."""
        if steps > _MOST_STEPS:
            raise Undecided
        return expression.value(lambda part: self._of_part(part, steps + 1))

    def _of_part(self, part: Expression, steps: int) -> Any:
        if part.is_call and not part.called.isdisjoint(_CONVERTS) and len(part.arguments) == 1:
            return self.value(part.arguments[0], steps)
        if isinstance(part.node, ast.Call) and _is_made(part, part.node):
            return part.node  # which is not None, and true
        return self._of_point(part, part.point, steps)[0]

    def _of_point(self, part: Expression, point: Point, steps: int) -> tuple[Any, bool]:
        """What a value is that has one definition, apart from constants, which hold in a single process; and whether
        it is a constant."""
        if point not in self._values:
            self._values[point] = None
            self._under_way.add(point)
            with suppress(Undecided):
                self._values[point] = self._find(part, point, steps)
            self._under_way.discard(point)
        if (found := self._values[point]) is None:
            raise Undecided
        return found

    def _find(self, part: Expression, point: Point, steps: int) -> tuple[Any, bool]:
        node = point.node
        if isinstance(node, ast.Constant):
            return node.value, True
        if steps <= _MOST_STEPS and (tried := self.known(point)) is not None:
            return tried, False
        if steps > _MOST_STEPS or (isinstance(node, Definition) and node.how is How.CHANGED):
            raise Undecided
        copies = part.program.flow.copies(point)
        if isinstance(node, Definition) and node.how is How.GIVEN:  # in a loop: it is what it was before that
            copies = [it for it in copies if it not in self._under_way]
        copies = self._that_hold(part, copies, steps)
        found = [self._of_copy(part, it, steps + 1) for it in copies]
        is_object = any(isinstance(value, ast.AST) for value, _ in found)  # beside which None counts
        others = [value for value, constant in found if is_object or not constant] or [it for it, _ in found]
        if not others or any(it != others[0] for it in others):
            raise Undecided
        return others[0], all(constant for _, constant in found)

    def _that_hold(self, part: Expression, copies: list[Point], steps: int) -> list[Point]:
        """Those of several copies whose conditions are not known to be otherwise; the last alone whose are so."""
        if len(copies) < 2:
            return copies
        around = {it.test.node for it in part.program.conditions(part.where)}
        alive, sure = [], []
        for copy in copies:
            conditions = [it for it in part.program.conditions(where_of(copy)) if it.test.node not in around]
            answers = [self._is_so(it, copy, steps) for it in conditions]
            alive += [copy] if False not in answers else []
            sure += [copy] if answers and all(answers) else []
        return sure[-1:] or alive

    def _is_so(self, condition: Condition, copy: Point, steps: int) -> bool | None:
        test = replace(condition.test, context=copy.context)
        try:
            for each in test.parts():  # of which none is unknown
                self.value(each, steps + 1)
            return bool(self.value(test, steps + 1)) is condition.holds
        except (Undecided, TypeError, ArithmeticError):
            return None

    def _of_copy(self, part: Expression, copy: Point, steps: int) -> tuple[Any, bool]:
        if not isinstance(copy.node, ast.expr) or isinstance(copy.node, ast.Constant):
            return self._of_point(part, copy, steps)
        return self.value(Expression(part.program, copy.file, copy.node, copy.context), steps), False


def _is_made(part: Expression, call: ast.Call) -> bool:
    """Whether a call makes an object of a class."""
    of = part.program.flow.referents(part.inner(call.func).point)
    return bool(of) and all(
        it in MADE_BY_ONE_RANK if isinstance(it, str) else isinstance(it.node, ast.ClassDef) for it in of
    )
