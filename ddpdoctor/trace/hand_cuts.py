"""Parts of data that each rank cuts out for itself, by its number: ``names[rank::world_size]``."""

from __future__ import annotations

import ast
import re

from ddpdoctor.trace.expression_sources import Place, Search
from ddpdoctor.trace.syntax import called_name, computed_from, enclosing_function, is_named

_RANK = re.compile(r"(?<![a-z])rank(?![a-z])|process_index", re.IGNORECASE)


class Cuts(Search):
    """What takes the part of one rank."""

    def kind(self, node: ast.expr, place: Place) -> int:
        """Whether it is ``order[rank::n]``, ``order[rank * n : ...]``, ``parts[rank]``, the same by ``islice``, or a
        comprehension over every n-th element."""
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            return int(_is_one_part(node.slice))
        given = [part for value in _by_number(node) for part in ast.walk(value)]
        if not given:
            return 0
        names = computed_from(enclosing_function(place.tree, node.lineno), _is_rank)
        return int(any(_is_rank(part) or is_named(part, names) for part in given))

    def hides(self, node: ast.AST) -> bool:
        """Whether a part is only counted there."""
        return isinstance(node, ast.Call) and called_name(node) == "len"

    @staticmethod
    def cut_up(cut: ast.expr) -> ast.expr:
        """What a rank takes its part of."""
        if isinstance(cut, ast.Subscript):
            return cut.value
        return cut.args[0] if isinstance(cut, ast.Call) else cut


def _is_one_part(index: ast.expr) -> bool:
    """Whether an index is the number of a rank; one that holds a slice is itself cut out of something."""
    return mentions_rank(index) and not any(isinstance(part, ast.Slice) for part in ast.walk(index))


def _by_number(node: ast.expr) -> list[ast.expr]:
    """What decides where in a sequence a part begins, or which of its elements are taken."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        bounds = node.slice
        return [bounds.lower] if bounds.lower and (bounds.upper or bounds.step) else []
    if isinstance(node, ast.Call) and called_name(node) == "islice":
        return node.args[1:2]
    if not isinstance(node, ast.ListComp | ast.GeneratorExp):
        return []
    first = node.generators[0]
    chosen = [test for test in first.ifs if any(map(_is_modulo, ast.walk(test)))]
    by_range = isinstance(first.iter, ast.Call) and called_name(first.iter) == "range"
    return [*chosen, *(first.iter.args[:-1][:1] if isinstance(first.iter, ast.Call) and by_range else ())]


def mentions_rank(expression: ast.AST) -> bool:
    """Whether the number of the rank stands in an expression."""
    return any(map(_is_rank, ast.walk(expression)))


def _is_rank(node: ast.AST) -> bool:
    name = getattr(node, "id", getattr(node, "attr", getattr(node, "value", None)))
    return isinstance(name, str) and _RANK.search(name) is not None


def _is_modulo(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
