"""What the program says of the nodes of a file, in the terms of patches."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.imports import DIST, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.program import Condition, Origin
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.files import FUNCTIONS, dotted
from ddpdoctor.program.known import RETURNS_ITS_ARGUMENTS
from ddpdoctor.program.points import Entity, Point
from ddpdoctor.program.signatures import argument, returned

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


def means(source: Source, node: Node, *names: str) -> bool:
    """Whether an expression is one of these functions or classes.

    Args:
        names: qualified; one without a dot is a method of whatever object.
    """
    found = source.expression(node).names
    last = getattr(node, "attr", getattr(node, "id", ""))
    plain = {name for name in names if "." not in name}
    # What nobody defines, as behind ``from torch import *``, is known by its name alone.
    unknown = {name.rpartition(".")[2] for name in names} if not found else plain
    return not found.isdisjoint(names) or last in unknown


def calls(source: Source, *names: str, within: Node = ()) -> list[Node]:
    """The calls of functions or classes of these names."""
    return [call for call in source.all(ast.Call, within=within) if means(source, call.func, *names)]


def is_call_of(source: Source, node: Node | None, *names: str) -> bool:
    """Whether it is a call of one of these functions or classes."""
    return isinstance(node, ast.Call) and means(source, node.func, *names)


def is_method(node: Node, *names: str) -> bool:
    """Whether it is the call of a method of one of these names."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def value_of(source: Source, node: Node) -> Node:
    """The expression of this file that a variable, a parameter or a call stands for; itself where that is not known."""
    values = source.program.values(source.expression(node))
    own = [value.node for value in values if value is not None and value.file is source.file]
    return own[0] if len(values) == len(own) == 1 else node


def values_of(source: Source, node: Node) -> list[Node]:
    """All the expressions of this file that it may stand for."""
    values = source.program.values(source.expression(node))
    return [value.node for value in values if value is not None and value.file is source.file]


def assigned(source: Source, node: Node) -> Node | None:
    """What the variable was assigned that reaches it, itself perhaps a copy; None where that is not one value."""
    ways = [it.node for it in source.program.flow.copies(source.point(node))]
    found: list[Node] = []
    for way in ways:  # which grows
        if isinstance(way, Definition) and way.how in (How.GIVEN, How.CHANGED):
            ways += [it for it in way.before if it not in ways]
        elif isinstance(way, Definition) and way.how is How.ASSIGNED and not way.path:
            found.append(way.value)
    return found[0] if len(found) == 1 and found[0] in source.file.scopes else None


def callers(source: Source, function: Node) -> list[tuple[Source, Node]]:
    """The calls of a function, or of a method, in the program."""
    if not isinstance(function, FUNCTIONS):
        return []
    found = source.program.flow.callers(function)
    return [(source.project.source(file.path), call) for call, file in found]


def parameter(source: Source, node: Node) -> tuple[Node, Node] | None:
    """The function of which a variable is a parameter, and that; None where it is none."""
    function = source.enclosing(node, *FUNCTIONS)
    given = function.args if function is not None else None
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs) if given else ()
    return next(((function, it) for it in every if it.arg == dotted(node)), None)


def passed(source: Source, node: Node) -> list[tuple[Source, Node, Node]]:
    """For a parameter, the calls of its function: the file, the call, and what that gives for it."""
    function, given = parameter(source, node) or (None, None)
    return arguments_for(source, function, given)


def arguments_for(source: Source, function: Node, given: Node) -> list[tuple[Source, Node, Node]]:
    """The calls of a function that give a parameter: the file, the call, and what that gives for it."""
    found = []
    for there, call in callers(source, function):
        value = source.program.flow.argument_of(there.point(call), function, given)
        if value is not None:
            found.append((there, call, value.node))
    return found


def names_in(source: Source, node: Node) -> list[Node]:
    """The variables, attributes and entries that an expression reads, the outermost of each."""
    reads = [it for it in source.all(ast.Name, ast.Attribute, ast.Subscript, within=node) if dotted(it)]
    return [it for it in reads if source.file.parents.get(it) not in reads]


def free(source: Source, at: Node, name: str) -> str:
    """A name for a new variable: this one, or one like it where the function has it already."""
    scope = source.scope(at)
    taken = {node.id for node in source.all(ast.Name, within=scope)}
    taken |= {node.arg for node in source.all(ast.arg, within=scope)}
    return next(other for other in (name, f"rank_{name}", f"new_{name}", f"{name}_2") if other not in taken)


# -- the process group ------------------------------------------------------------------------------------


def rank(source: Source, at: Node, *, plain: bool = False) -> str:
    """The rank, as the file may write it here: its own variable, or a call.

    Args:
        plain: whether there is a process group wherever this runs; else it is 0 without one.
    """
    return _from_group(source, at, "get_rank", "" if plain else "0")


def world_size(source: Source, at: Node, *, plain: bool = False) -> str:
    """The number of ranks, as the file may write it here; ``plain`` as for :func:`rank`."""
    return _from_group(source, at, "get_world_size", "" if plain else "1")


def local_rank(source: Source, at: Node) -> str | None:
    """The number of the rank on its host, as the file may write it here; None where it has no name for it."""
    return readable(source, at, lambda point: _gives(source, point, "get_node_local_rank"))


def _from_group(source: Source, at: Node, function: str, alone: str) -> str:
    name = readable(source, at, lambda point: _gives(source, point, function))
    if name:
        return name
    for (
        call
    ) in source.file.calls:  # a function of the script's own, which knows what to say of a single process
        is_own = any(isinstance(it, Entity) for it in source.program.flow.called(source.point(call)))
        if (
            is_own
            and dotted(call.func)
            and not arguments(call)
            and _gives(source, source.point(call), function)
        ):
            return str(source.code(call))
    written = f"{use(source, f'{DIST}.{function}')}()"
    return f"({written} if {has_group(source)} else {alone})" if alone and may_lack_group(source) else written


def arguments(call: Node) -> list[Node]:
    """What a call is given."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def readable(source: Source, at: Node, fits: Callable[[Point], bool]) -> str | None:
    """The name of a variable that has such a value and can be read here, the nearest first."""
    for key, definitions in _variables(source, at):
        known = [it for it in definitions if it.how in (How.ASSIGNED, How.PARAMETER)]
        if known and all(fits(Point(it, source.file)) for it in known):
            return key
    return None


def _variables(source: Source, at: Node) -> Iterator[tuple[str, list[Definition]]]:
    scope, flow = source.scope(at), source.program.flow
    own = flow.chains(scope, source.file).all
    before = [
        (key, list(its))
        for key, its in own.items()
        if "[" not in key
        and all(getattr(it.node, "lineno", 0) < at.lineno for it in its if it.how is How.ASSIGNED)
    ]
    yield from reversed(before)
    around = source.enclosing(at, ast.ClassDef)
    for store in source.file.stores if around is not None and scope is not source.tree else ():
        key, inside = dotted(store) or "", source.file.scopes[store]
        definition = flow.chains(inside, source.file).definition(store)
        if (
            definition is not None
            and source.enclosing(store, ast.ClassDef) is around
            and key.startswith("self.")
        ):
            # Given by a caller, it may be another number of the same value.
            ends = flow.ends(Point(definition, source.file))
            if all(
                not isinstance(end.node, Definition) and source.file.scopes.get(end.node) is inside
                for end in ends
            ):
                yield key, [definition]
    if scope is not source.tree:
        for key, its in flow.chains(source.tree, source.file).all.items():
            if "[" not in key and key.partition(".")[0] not in own:
                yield key, list(its)


def _gives(source: Source, point: Point, function: str) -> bool:
    """Whether a value is what a function of the process group gives, also by the launcher's variable for it, and 0 or 1
    where there is no group."""
    flow = source.program.flow
    ends = flow.ends(point)
    numbers = [end for end in ends if _is_number(source, end, function)]
    others = [end for end in ends if not isinstance(end.node, ast.Constant)]
    return bool(numbers) and len(numbers) == len(others)


def _is_number(source: Source, end: Point, function: str) -> bool:
    node, flow, variable = end.node, source.program.flow, _VARIABLES[function]
    if isinstance(node, Definition):
        return function == "get_rank" and node.how is How.PARAMETER and node.node in flow.rank_ends()
    if not isinstance(node, ast.Call):
        return False
    names = {leaf.name for leaf in flow.origins(end) if leaf.name.startswith(("torch.", "os."))}
    if not flow.referents(end.at(node.func)).isdisjoint({f"{DIST}.{function}"}):
        return not arguments(node)
    is_read = "builtins.int" in flow.referents(end.at(node.func))
    return is_read and names == {f"os.environ[{variable!r}]"}


def has_group(source: Source) -> str:
    """Whether there is a process group, as the file may write it."""
    return f"{use(source, f'{DIST}.is_initialized')}()"


def may_lack_group(source: Source) -> bool:
    """Whether the program initializes its process group under a condition: it also runs without, in one process."""
    if source.lacks_group is None:
        places = source.program.calls(INIT)
        files = [source.project.source(place.file) for place in places]
        inits = [
            (file, call)
            for file, place in zip(files, places, strict=True)
            for call in file.on_line(place.line, ast.Call)
            if means(file, call.func, INIT)
        ]
        source.lacks_group = any(is_optional(file, call) for file, call in inits)
    return source.lacks_group


def is_optional(source: Source, node: Node, depth: int = 2) -> bool:
    """Whether a statement may be left out: by a condition, a return before it, or where its function is called."""
    for condition in source.program.conditions(source.where(node)):
        decides = source.file.parents.get(condition.test.node)
        if not (isinstance(decides, ast.If) and _is_in_both(source, decides, node)):
            return True
    sites = callers(source, source.scope(node)) if depth else []
    return bool(sites) and all(is_optional(there, call, depth - 1) for there, call in sites)


def _is_in_both(source: Source, condition: Node, node: Node) -> bool:
    """Whether both branches of a condition do the same, or it only asks for the main module."""
    if any(name.id == "__name__" for name in source.all(ast.Name, within=condition.test)):
        return True
    names = source.expression(node.func).names if isinstance(node, ast.Call) else ()
    branches = (condition.body, condition.orelse)
    return bool(names) and all(branch and calls(source, *names, within=branch) for branch in branches)


# -- conditions -------------------------------------------------------------------------------------------


def decides_by_rank(source: Source, test: Node) -> bool:
    """Whether the number of the rank decides a condition."""
    return Condition(source.expression(test), True, source.where(test)).by_rank is not None


def rank_guard(source: Source, node: Node) -> Node | None:
    """The innermost condition by rank around a node, in the same function."""
    for inner, parent in _around(source, node):
        if isinstance(parent, ast.If) and inner is not parent.test and decides_by_rank(source, parent.test):
            return parent
    return None


def _around(source: Source, node: Node) -> Iterator[tuple[Node, Node]]:
    """What is around a node in its function, each with what it is around."""
    for parent in source.within_function(node):
        yield node, parent
        node = parent


def all_come_to(source: Source, node: Node, depth: int = 2) -> bool:
    """Whether every rank comes to a line if one does: by no condition that is not the same on all ranks."""
    for inner, parent in _around(source, node):
        is_condition = isinstance(parent, (ast.If, ast.IfExp, ast.While)) and inner is not parent.test
        if (
            is_condition
            and _may_differ(source, parent.test)
            and not calls(source, f"{DIST}.barrier", within=parent)
        ):
            return False
    sites = callers(source, source.scope(node)) if depth else []
    return all(all_come_to(there, call, depth - 1) for there, call in sites)


def _may_differ(source: Source, test: Node) -> bool:
    kinds = source.expression(test).origins.kinds
    return not kinds <= {Origin.EQUAL, Origin.REDUCED, Origin.ENVIRONMENT}


def differs_around(source: Source, node: Node) -> Node | None:
    """The outermost condition around a node, in its function, on what ranks have of their own."""
    around = [it for it in source.within_function(node) if isinstance(it, ast.If)]
    differ = [it for it in around if any(kind.differs for kind in source.expression(it.test).origins.kinds)]
    return differ[-1] if differ else None


def tells_rank_0(source: Source, test: Node) -> bool:
    """Whether a condition is true on rank 0 alone, and in a single process: ``rank == 0``, as a function may return."""
    values = source.program.values(source.expression(test))
    known = [(source.project.source(it.file.path), it.node) for it in values if it is not None]
    compares = any(isinstance(node, ast.Compare) for _, node in known)
    return compares and len(known) == len(values) and all(_is_rank_0(there, node) for there, node in known)


def _is_rank_0(source: Source, node: Node) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is True  # of a single process
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
        return isinstance(node, ast.UnaryOp) and not decides_by_rank(source, node)
    is_zero = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value == 0
    return is_zero and _gives(source, source.point(node.left), "get_rank")


# -- models and optimizers --------------------------------------------------------------------------------


def is_wrapped(source: Source, node: Node) -> bool:
    """Whether a value is a wrapper: made by a call that wraps, wherever that is."""
    return DDP in source.program.flow.types(source.point(node))


def calls_of_wrappers(source: Source, within: Node) -> list[Node]:
    """The forwards of wrappers in a part of a file: ``model(x)``."""
    every = source.all(ast.Call, within=within)
    return [call for call in every if dotted(call.func) and is_wrapped(source, call.func)]


def optimizers(source: Source) -> list[Node]:
    """The calls that make optimizers: torch's, and what takes parameters and later a step."""
    steps = calls(source, "step")
    stepping = {made for call in steps for made in values_of(source, getattr(call.func, "value", call))}
    return [
        call
        for call in source.all(ast.Call)
        if models_of(call)
        and isinstance(source.statement(call), (ast.Assign, ast.AnnAssign))
        and (call in stepping or _may_optimize(source, call))
    ]


def _may_optimize(source: Source, call: Node) -> bool:
    names = source.expression(call.func).names
    return not names or any(name.startswith("torch.optim.") for name in names)


def assigned_to(source: Source, call: Node) -> str:
    """The name that the statement of a call assigns its value to.

    Raises:
        CannotPatch: it assigns it to none.
    """
    statement = source.statement(call)
    if isinstance(statement, ast.Assign) and statement.value is call and dotted(statement.targets[0]):
        return source.code(statement.targets[0])
    raise CannotPatch(f"what line {call.lineno} makes has no name of its own")


def models_of(optimizer: Node) -> list[Node]:
    """What an optimizer was given the parameters of."""
    given: list[Node] = [call for part in arguments(optimizer) for call in ast.walk(part)]
    return [call.func.value for call in given if is_method(call, "parameters")]


# -- loops ------------------------------------------------------------------------------------------------


def behind_bars(source: Source, node: Node) -> Node:
    """What is iterated, behind ``enumerate``, progress bars and ``iter``."""
    around = ("builtins.enumerate", "tqdm", *RETURNS_ITS_ARGUMENTS)
    while is_call_of(source, node, *around) and node.args:
        node = node.args[0]
    return node


def is_numbered(source: Source, node: Node) -> bool:
    """Whether a loop over this has numbers: range, also behind a progress bar."""
    counts = ("builtins.range", "tqdm.trange", "itertools.count")
    values = [behind_bars(source, value) for value in values_of(source, node)]
    return bool(values) and all(is_call_of(source, it, *counts) for it in values)


__all__ = ["argument", "dotted", "returned"]
