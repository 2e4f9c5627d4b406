"""Which ways of a program are a job process's: not one's that starts the ranks, nor one's without a process group."""

import ast
from collections.abc import Iterable, Sequence

from ddpdoctor.program import Condition, Expression, Program
from ddpdoctor.program.files import FUNCTIONS
from ddpdoctor.program.ways import Way, ways_to


class Processes:
    """The processes that a program is run by: of the calls that make the process group, and those that start
    processes."""

    def __init__(self, program: Program, groups: Iterable[Expression], starts: Iterable[Expression]) -> None:
        self.program = program
        joining = [way for it in groups for way in ways_to(it)]
        needs = [{(it.test.identity, it.holds) for it in _needs(way.conditions)} for way in joining]
        self._joining = {it for it in set.intersection(*needs) if it[0]} if needs else set()
        """What is so, or not, on each way to where the group is made."""
        spawned = any(map(self._is_spawned, joining))
        self._starts = {self._begin(way) for it in starts for way in ways_to(it)} if spawned else set()
        """The statements by which a process starts the ranks that is none of them."""

    def is_of_job(self, way: Way) -> bool:
        """Whether a rank may come by a way."""
        if self._starts and not self._is_spawned(way) and self._begin(way) in self._starts:
            return False
        return not (self._joining and any(map(self._is_alone, _needs(way.conditions))))

    def _begin(self, way: Way) -> ast.stmt | None:
        """The statement of a module with which a way begins."""
        first = way.lines[-1]
        body = self.program.files[first.file].tree.body
        return next((it for it in body if it.lineno <= (first.line or 0) <= (it.end_lineno or 0)), None)

    def _is_spawned(self, way: Way) -> bool:
        """Whether a way leads through a function that the program starts processes with."""
        files = ((self.program.files[it.file], it.line) for it in way.lines)
        scopes = ((file.function_at(line), file) for file, line in files)
        return any(isinstance(it, FUNCTIONS) and self.program.flow.is_spawned(it, at) for it, at in scopes)

    def _is_alone(self, condition: Condition) -> bool:
        """Whether something is not so that is so where the group is made; or it is a variable that is set to constants,
        and those that are set where the group is made say otherwise."""
        if (condition.test.identity, not condition.holds) in self._joining:
            return True
        values = condition.test.values
        joined = [it for it in values if it is None or not self._is_set_alone(it)]
        return len(values) > len(joined) > 0 and all(
            it is not None
            and isinstance(it.node, ast.Constant)
            and bool(it.node.value) is not condition.holds
            for it in joined
        )

    def _is_set_alone(self, value: Expression) -> bool:
        needs = _needs(self.program.conditions(value.where))
        return any((it.test.identity, not it.holds) in self._joining for it in needs)


def _needs(conditions: Sequence[Condition]) -> list[Condition]:
    """Conditions, and the parts of them that each have to be so."""
    return [it for condition in conditions for it in (condition, *condition.needs())]
