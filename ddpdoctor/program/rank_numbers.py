"""Which values are the number of the rank: what the program gives to torch as such, or torch to the program."""

import ast
from collections.abc import Iterator, Mapping

from ddpdoctor.program import known
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.files import FUNCTIONS, File, Function, argument
from ddpdoctor.program.index import Entity, Point
from ddpdoctor.program.objects import Objects


class RankNumbers(Objects):
    """The numbers of ranks in one program."""

    _rank_ends: set[object] | None = None

    def is_number_of_spawned(self, definition: Definition, file: File) -> bool:
        """Whether torch starts a process with this function, and gives the number of the rank as this parameter."""
        function = file.parents[file.parents[definition.node]]
        parameters = function.args.args if isinstance(function, FUNCTIONS) else []
        if not parameters or parameters[0] is not definition.node:
            return False
        return self.is_spawned(function, file, known.SPAWNS)  # type: ignore[arg-type]

    def is_spawned(self, function: Function, file: File, by: Mapping[str, int] = known.PROCESSES) -> bool:
        """Whether the program starts processes with a function."""
        return any(
            Entity(function, file) in self.referents(Point(given, where))
            for name, position in by.items()
            for call, where in self._calls_of.get(name.rpartition(".")[2], ())
            if (given := argument(call, position, "target"))
            and name in self.referents(Point(call.func, where))
        )

    def rank_ends(self) -> set[object]:
        """The parameters, attributes and expressions that the program gives to torch as the number of the rank."""
        if self._rank_ends is None:
            self._rank_ends = set()
            found = [end for it in self._rank_arguments() for end in self.ends(it)]
            for end in found:
                node = end.node
                if isinstance(node, Definition) and node.how is How.PARAMETER:
                    self._rank_ends.add(node.node)
                elif isinstance(node, ast.Attribute):
                    owners = self.types(end.at(node.value))
                    self._rank_ends |= {(owner, node.attr) for owner in owners} or {node}
                elif isinstance(node, ast.Subscript):
                    self._rank_ends.add(node)
        return self._rank_ends

    def _rank_arguments(self) -> Iterator[Point]:
        for name, (position, keyword) in known.RANK_ARGUMENTS.items():
            for call, file in self._calls_of.get(name.rpartition(".")[2], ()):
                if name in self.referents(Point(call.func, file)):
                    given = argument(call, position, keyword)
                    if given is not None:
                        yield Point(given, file)
