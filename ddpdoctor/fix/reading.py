"""What the program says of the nodes of a file, in the terms of patches."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.source import Node, Nodes
from ddpdoctor.program import Condition, Origin
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.files import FUNCTIONS, argument, dotted
from ddpdoctor.program.index import Point
from ddpdoctor.program.known import RETURNS_ITS_ARGUMENTS

if TYPE_CHECKING:
    from ddpdoctor.fix.writing import Source

DIST = "torch.distributed"
DDP = "torch.nn.parallel.DistributedDataParallel"
LOADER = "torch.utils.data.DataLoader"
SAMPLER = "torch.utils.data.DistributedSampler"
INIT = f"{DIST}.init_process_group"
LOCAL_RANK = (
    "os.environ['LOCAL_RANK']",
    f"{DIST}.get_node_local_rank",
    "argparse.ArgumentParser.parse_args.local_rank",
)
"""What gives the number of a rank on its host; the option is torch.distributed.launch's."""
_VARIABLES = {"get_rank": "RANK", "get_world_size": "WORLD_SIZE", "get_node_local_rank": "LOCAL_RANK"}


class Reading(Nodes):
    """A file of the user's, as patches read it."""

    def means(self, node: Node, *names: str) -> bool:
        """Whether it is one of these functions or classes, by qualified name; without a dot, a method of any object."""
        found = self.expression(node).names
        last = getattr(node, "attr", getattr(node, "id", ""))
        plain = {name for name in names if "." not in name}
        # What nobody defines, as behind ``from torch import *``, is known by its name alone.
        unknown = {name.rpartition(".")[2] for name in names} if not found else plain
        return not found.isdisjoint(names) or last in unknown

    def calls(self, *names: str, within: Node = ()) -> list[Node]:
        """The calls of functions or classes of these names."""
        return [call for call in self.all(ast.Call, within=within) if self.means(call.func, *names)]

    def is_call_of(self, node: Node | None, *names: str) -> bool:
        """Whether it is a call of one of these functions or classes."""
        return isinstance(node, ast.Call) and self.means(node.func, *names)

    def value_of(self, node: Node) -> Node:
        """The expression of this file that a variable, a parameter or a call stands for; itself where unknown."""
        own = self.values_of(node)
        return own[0] if len(self.expression(node).values) == len(own) == 1 else node

    def values_of(self, node: Node) -> list[Node]:
        """All the expressions of this file that it may stand for."""
        values = self.expression(node).values
        return [value.node for value in values if value is not None and value.file is self.file]

    def assigned(self, node: Node) -> Node | None:
        """What the variable was assigned that reaches it, itself perhaps a copy; None where that is not one value."""
        ways = [it.node for it in self.program.flow.copies(self.point(node))]
        found: list[Node] = []
        for way in ways:  # which grows
            if isinstance(way, Definition) and way.how in (How.GIVEN, How.CHANGED):
                ways += [it for it in way.before if it not in ways]
            elif isinstance(way, Definition) and way.how is How.ASSIGNED and not way.path:
                found.append(way.value)
        return found[0] if len(found) == 1 and found[0] in self.file.scopes else None

    def callers(self, function: Node) -> list[tuple[Source, Node]]:
        """The calls of a function, or of a method, in the program."""
        if not isinstance(function, FUNCTIONS):
            return []
        found = self.program.flow.callers(function)
        return [(self.project.source(file.path), call) for call, file in found]

    def parameter(self, node: Node) -> tuple[Node, Node] | None:
        """The function of which a variable is a parameter, and that; None where it is none."""
        function = self.enclosing(node, *FUNCTIONS)
        given = function.args if function is not None else None
        every = (*given.posonlyargs, *given.args, *given.kwonlyargs) if given else ()
        return next(((function, it) for it in every if it.arg == dotted(node)), None)

    def passed(self, node: Node) -> list[tuple[Source, Node, Node]]:
        """For a parameter, the calls of its function: the file, the call, and what that gives for it."""
        function, given = self.parameter(node) or (None, None)
        return self.arguments_for(function, given)

    def arguments_for(self, function: Node, given: Node) -> list[tuple[Source, Node, Node]]:
        """The calls of a function that give a parameter: the file, the call, and what that gives for it."""
        found = []
        for there, call in self.callers(function):
            if (value := self.program.flow.argument_of(there.point(call), function, given)) is not None:
                found.append((there, call, value.node))
        return found

    def names_in(self, node: Node) -> list[Node]:
        """The variables, attributes and entries that an expression reads, the outermost of each."""
        reads = [it for it in self.all(ast.Name, ast.Attribute, ast.Subscript, within=node) if dotted(it)]
        return [it for it in reads if self.file.parents.get(it) not in reads]

    # -- the process group ------------------------------------------------------------------------------------

    def readable(self, at: Node, fits: Callable[[Point], bool]) -> str | None:
        """The name of a variable that has such a value and can be read here, the nearest first."""
        for key, definitions in self._variables(at):
            known = [it for it in definitions if it.how in (How.ASSIGNED, How.PARAMETER)]
            if known and all(fits(Point(it, self.file)) for it in known):
                return key
        return None

    def _variables(self, at: Node) -> Iterator[tuple[str, list[Definition]]]:
        scope, flow = self.scope(at), self.program.flow
        own = flow.chains(scope, self.file).all
        for key, its in reversed([*own.items()]):
            lines = [getattr(it.node, "lineno", 0) for it in its if it.how is How.ASSIGNED]
            if "[" not in key and max(lines, default=0) < at.lineno:
                yield key, list(its)
        around = self.enclosing(at, ast.ClassDef)
        for store in self.file.stores if around is not None and scope is not self.tree else ():
            key, inside = dotted(store) or "", self.file.scopes[store]
            definition = flow.chains(inside, self.file).definition(store)
            is_of_class = key.startswith("self.") and self.enclosing(store, ast.ClassDef) is around
            if definition is not None and is_of_class:
                # Given by a caller, it may be another number of the same value.
                ends = [it.node for it in flow.ends(Point(definition, self.file))]
                if all(not isinstance(it, Definition) and self.file.scopes.get(it) is inside for it in ends):
                    yield key, [definition]
        if scope is not self.tree:
            for key, its in flow.chains(self.tree, self.file).all.items():
                if "[" not in key and key.partition(".")[0] not in own:
                    yield key, list(its)

    def _gives(self, point: Point, function: str) -> bool:
        """Whether a value is what a function of the process group gives, also by the launcher's variable for it; 0 or 1
        where there is no group."""
        flow = self.program.flow
        ends = flow.ends(point)
        numbers = [end for end in ends if self._is_number(end, function)]
        others = [end for end in ends if not isinstance(end.node, ast.Constant)]
        return bool(numbers) and len(numbers) == len(others)

    def _is_number(self, end: Point, function: str) -> bool:
        node, flow, variable = end.node, self.program.flow, _VARIABLES[function]
        if isinstance(node, Definition):
            return function == "get_rank" and node.how is How.PARAMETER and node.node in flow.rank_ends()
        if not isinstance(node, ast.Call):
            return False
        names = {leaf.name for leaf in flow.origins(end) if leaf.name.startswith(("torch.", "os."))}
        if not flow.referents(end.at(node.func)).isdisjoint({f"{DIST}.{function}"}):
            return not arguments(node)
        is_read = "builtins.int" in flow.referents(end.at(node.func))
        return is_read and names == {f"os.environ[{variable!r}]"}

    def may_lack_group(self) -> bool:
        """Whether the program initializes its process group under a condition: it also runs without, in one process."""
        if self.lacks_group is None:
            places = [(self.project.source(place.file), place.line) for place in self.program.calls(INIT)]
            calls = [(file, call) for file, line in places for call in file.on_line(line, ast.Call)]
            inits = [(file, call) for file, call in calls if file.means(call.func, INIT)]
            self.lacks_group = any(file.is_optional(call) for file, call in inits)
        return self.lacks_group

    def is_optional(self, node: Node, depth: int = 2) -> bool:
        """Whether a statement may be left out: by a condition, a return before it, or where its function is called."""
        for condition in self.program.conditions(self.where(node)):
            decides = self.file.parents.get(condition.test.node)
            if not (isinstance(decides, ast.If) and self._is_in_both(decides, node)):
                return True
        sites = self.callers(self.scope(node)) if depth else []
        return bool(sites) and all(there.is_optional(call, depth - 1) for there, call in sites)

    def _is_in_both(self, condition: Node, node: Node) -> bool:
        """Whether both branches of a condition do the same, or it only asks for the main module."""
        if any(name.id == "__name__" for name in self.all(ast.Name, within=condition.test)):
            return True
        names = self.expression(node.func).names if isinstance(node, ast.Call) else ()
        branches = (condition.body, condition.orelse)
        return bool(names) and all(branch and self.calls(*names, within=branch) for branch in branches)

    # -- conditions -------------------------------------------------------------------------------------------

    def decides_by_rank(self, test: Node) -> bool:
        """Whether the number of the rank decides a condition."""
        return Condition(self.expression(test), True, self.where(test)).by_rank is not None

    def rank_guard(self, node: Node) -> Node | None:
        """The innermost condition by rank around a node, in the same function."""
        for inner, parent in self._around(node):
            if isinstance(parent, ast.If) and inner is not parent.test and self.decides_by_rank(parent.test):
                return parent
        return None

    def _around(self, node: Node) -> Iterator[tuple[Node, Node]]:
        """What is around a node in its function, each with what it is around."""
        for parent in self.within_function(node):
            yield node, parent
            node = parent

    def all_come_to(self, node: Node, depth: int = 2) -> bool:
        """Whether every rank comes to a line if one does: by no condition that is not the same on all ranks."""
        for inner, parent in self._around(node):
            is_condition = isinstance(parent, (ast.If, ast.IfExp, ast.While)) and inner is not parent.test
            differs = is_condition and self._may_differ(parent.test)
            if differs and not self.calls(f"{DIST}.barrier", within=parent):
                return False
        sites = self.callers(self.scope(node)) if depth else []
        return all(there.all_come_to(call, depth - 1) for there, call in sites)

    def _may_differ(self, test: Node) -> bool:
        kinds = self.expression(test).origins.kinds
        return not kinds <= {Origin.EQUAL, Origin.REDUCED, Origin.ENVIRONMENT}

    def differs_around(self, node: Node) -> Node | None:
        """The outermost condition around a node, in its function, on what ranks have of their own."""
        around = [it for it in self.within_function(node) if isinstance(it, ast.If)]
        differ = [it for it in around if any(kind.differs for kind in self.expression(it.test).origins.kinds)]
        return differ[-1] if differ else None

    def tells_rank_0(self, test: Node) -> bool:
        """Whether a condition is true on rank 0 alone, and in one process: ``rank == 0``, as a function may return."""
        values = self.expression(test).values
        known = [(self.project.source(it.file.path), it.node) for it in values if it is not None]
        compares = any(isinstance(node, ast.Compare) for _, node in known)
        return compares and len(known) == len(values) and all(there._is_rank_0(node) for there, node in known)

    def _is_rank_0(self, node: Node) -> bool:
        if isinstance(node, ast.Constant):
            return node.value is True  # of a single process
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
            return isinstance(node, ast.UnaryOp) and not self.decides_by_rank(node)
        is_zero = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value == 0
        return is_zero and self._gives(self.point(node.left), "get_rank")

    # -- models and optimizers --------------------------------------------------------------------------------

    def is_wrapped(self, node: Node) -> bool:
        """Whether a value is a wrapper: made by a call that wraps, wherever that is."""
        return DDP in self.program.flow.types(self.point(node))

    def calls_of_wrappers(self, within: Node) -> list[Node]:
        """The forwards of wrappers in a part of a file: ``model(x)``."""
        every = self.all(ast.Call, within=within)
        return [call for call in every if dotted(call.func) and self.is_wrapped(call.func)]

    def optimizers(self) -> list[Node]:
        """The calls that make optimizers: torch's, and what takes parameters and later a step."""
        steps = self.calls("step")
        stepping = {made for call in steps for made in self.values_of(getattr(call.func, "value", call))}
        taking = [call for call in self.all(ast.Call) if models_of(call)]
        kept = [call for call in taking if isinstance(self.statement(call), (ast.Assign, ast.AnnAssign))]
        return [call for call in kept if call in stepping or self._may_optimize(call)]

    def _may_optimize(self, call: Node) -> bool:
        names = self.expression(call.func).names
        return not names or any(name.startswith("torch.optim.") for name in names)

    def assigned_to(self, call: Node) -> str:
        """The name that the statement of a call assigns its value to; CannotPatch where it assigns it to none."""
        statement = self.statement(call)
        if isinstance(statement, ast.Assign) and statement.value is call and dotted(statement.targets[0]):
            return self.code(statement.targets[0])
        raise CannotPatch(f"what line {call.lineno} makes has no name of its own")

    # -- loops ------------------------------------------------------------------------------------------------

    def behind_bars(self, node: Node) -> Node:
        """What is iterated, behind ``enumerate``, progress bars and ``iter``."""
        around = ("builtins.enumerate", "tqdm", *RETURNS_ITS_ARGUMENTS)
        while self.is_call_of(node, *around) and node.args:
            node = node.args[0]
        return node

    def is_numbered(self, node: Node) -> bool:
        """Whether a loop over this has numbers: range, also behind a progress bar."""
        counts = ("builtins.range", "tqdm.trange", "itertools.count")
        values = [self.behind_bars(value) for value in self.values_of(node)]
        return bool(values) and all(self.is_call_of(it, *counts) for it in values)


def is_method(node: Node, *names: str) -> bool:
    """Whether it is the call of a method of one of these names."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def arguments(call: Node) -> list[Node]:
    """What a call is given."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def models_of(optimizer: Node) -> list[Node]:
    """What an optimizer was given the parameters of."""
    given: list[Node] = [call for part in arguments(optimizer) for call in ast.walk(part)]
    return [call.func.value for call in given if is_method(call, "parameters")]


__all__ = ["argument", "dotted"]
