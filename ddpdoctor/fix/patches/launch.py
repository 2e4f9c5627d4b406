"""The process group from its beginning to its end, and the GPU of each rank."""

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import DDP, DIST, INIT, LOCAL_RANK, argument, arguments, dotted
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.model import Where

_SPELLINGS = ("--local_rank", "--local-rank")
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_SET = "torch.cuda.set_device"
_DEPTH = 3


@patch("DD007")
def local_rank_option(case: Case) -> str:
    """``add_argument("--local_rank", "--local-rank")``, both of which are ``args.local_rank``."""
    for source in case.scripts:
        for call in source.calls("add_argument"):
            spelled = [arg for arg in call.args if getattr(arg, "value", None) in _SPELLINGS]
            missing = [it for it in _SPELLINGS if it not in [arg.value for arg in spelled]]
            if spelled and missing:
                code = source.code(spelled[-1])
                source.replace(spelled[-1], f"{code}, {code[0]}{missing[0]}{code[0]}")
                return f"{missing[0]} accepted, too"
    raise CannotPatch("no parser of the script takes the option in the other spelling")


@patch("DD005", changes=("samples",))
def group_of_launcher(case: Case) -> str:
    """Leave out what torchrun's variables say, and set them only where there is no launcher."""
    source = case.source
    settings = _set_variables(source)
    at_line = [statement for statement in settings if statement.lineno == case.line]
    given = [] if at_line else _given(source, case)
    for statement in settings:
        target = statement.targets[0]
        name, value = source.code(target.slice), source.code(statement.value)
        source.replace(statement, f"{source.code(target.value)}.setdefault({name}, {value})")
    if not given and not settings:
        raise CannotPatch("nothing in this file contradicts the launcher")
    return "rank and number of ranks of the launcher" if given else "the variables of the launcher"


def _set_variables(source: Source) -> list[Node]:
    """The statements that set a variable of the launcher."""
    return [
        node
        for node in source.all(ast.Assign)
        if isinstance(node.targets[0], ast.Subscript)
        and source.means(node.targets[0].value, "os.environ")
        and getattr(node.targets[0].slice, "value", None) in _VARIABLES
    ]


def _given(source: Source, case: Case) -> list[Node]:
    """Arguments of init_process_group that say what the launcher says; they are removed."""
    given = []
    for call in case.calls(INIT):
        values = [argument(call, None, name) for name in ("init_method", "rank", "world_size")]
        values = [value for value in values if value is not None]
        source.remove_arguments(call, values)
        given += values
    return given


@patch("DD802", "DD803")
def gpu_of_rank(case: Case) -> str:
    """``torch.cuda.set_device`` by LOCAL_RANK, before anything uses a GPU."""
    source, statement = case.source, case.statement
    environ = f"{source.use('os')}.environ"
    read = f'{environ}.get("LOCAL_RANK", 0)' if source.may_lack_group() else f'{environ}["LOCAL_RANK"]'
    number = f"int({read})"
    if chosen := case.calls(_SET):
        value = source.value_of(chosen[0].args[0])
        is_text = isinstance(value, ast.JoinedStr) or isinstance(getattr(value, "value", None), str)
        if _is_of_local_rank(source, value):
            raise CannotPatch("it is the GPU of the local rank already")
        source.replace(value, f"f'cuda:{{{number}}}'" if is_text else number)
        return "the GPU of the local rank"
    elsewhere = [call for call in source.calls(_SET) if source.scope(call) is source.scope(statement)]
    if not elsewhere:
        inits = source.calls(INIT)
        if not inits:
            raise CannotPatch("init_process_group is called in another file")
        source.insert_before(source.statement(inits[0]), f"{source.use('torch.cuda')}.set_device({number})")
        _leave_gpu_0(source)
        return "set_device by LOCAL_RANK"
    call = elsewhere[0]
    made = source.statement(source.value_of(call.args[0])) if dotted(call.args[0]) else None
    for moved in (made, source.statement(call)):
        if isinstance(moved, (ast.Assign, ast.Expr)) and moved.lineno > statement.lineno:
            source.move_before(moved, statement)
    return "set_device before GPUs are used"


def _is_of_local_rank(source: Source, value: Node) -> bool:
    parts = [part.value for part in getattr(value, "values", ()) if isinstance(part, ast.FormattedValue)]
    origins = [source.expression(part).origins for part in parts]
    return any(it.name in LOCAL_RANK for origin in origins for it in origin.sources)


def _leave_gpu_0(source: Source) -> None:
    """``cuda`` in place of ``cuda:0``, and the current device in place of 0 in device_ids."""
    for string in source.all(ast.Constant):
        if string.value == "cuda:0":
            source.replace(string, source.code(string).replace("cuda:0", "cuda"))
    for call in source.calls(DDP):
        given = argument(call, 1, "device_ids")
        if given is not None and source.code(given) == "[0]":
            source.replace(given, f"[{source.use('torch.cuda')}.current_device()]")


@patch("DD310")
def destroy_process_group(case: Case) -> str:
    """``destroy_process_group`` at the end of the block that trains."""
    source, statement = case.source, case.statement
    guarded = source.may_lack_group() or _outermost(source, statement) is not statement
    for _ in range(_DEPTH):
        function = source.scope(statement)
        if function is source.tree or _is_started(source, function):
            break
        if _trains(case, source, function) and not _leaves_early(source, function):
            break
        source, call = _only_call(source, function)
        statement = source.statement(call)
        guarded = guarded or _outermost(source, statement) is not statement
    line = f"{source.use(f'{DIST}.destroy_process_group')}()"
    if guarded:
        line = f"if {source.has_group()}:\n\t{line}"
    last = source.block(_outermost(source, statement))[-1]
    if isinstance(last, ast.Raise):
        raise CannotPatch("the block ends with an exception")
    insert = source.insert_before if isinstance(last, ast.Return) else source.insert_after
    insert(last, line)
    return "destroy_process_group at the end"


def _trains(case: Case, source: Source, function: Node) -> bool:
    """Whether the ranks made a wrapper or trained between the lines of this function; true where nothing is known."""
    recordings = case.trace.recorded.values()
    made = [wrapper.at for recording in recordings for wrapper in recording.wrappers]
    passes = [pass_.at for recording in recordings for pass_ in recording.training_passes]
    places: list[Where] = [place for place in (*made, *passes) if place]
    lines = [place.line or 0 for place in places if case.project.path(place.file) == source.path]
    return not places or any(function.lineno <= line <= function.end_lineno for line in lines)


def _leaves_early(source: Source, function: Node) -> bool:
    """Whether a function returns before its end, which may be in a loop that trains."""
    leaves = [node for node in source.all(ast.Return, within=function) if source.scope(node) is function]
    return any(node is not function.body[-1] for node in leaves)


def _is_started(source: Source, function: Node) -> bool:
    """Whether the function is passed to what starts the ranks: ``mp.spawn(main, ...)``."""
    given = (it for call in source.file.calls for it in arguments(call))
    return any(isinstance(it, ast.Name) and it.id == function.name for it in given)


def _only_call(source: Source, function: Node) -> tuple[Source, Node]:
    """Where a function is called in the program; CannotPatch where it is nowhere, or several times."""
    sites = source.callers(function)
    if len(sites) == 1:
        return sites[0]
    raise CannotPatch(f"it is not known where the script ends: {function.name} is called {len(sites)} times")


def _outermost(source: Source, statement: Node) -> Node:
    """The statement around the conditions that a statement is under, but for that of the main module."""
    conditions = [it for it in source.within_function(statement) if isinstance(it, ast.If)]
    others = [it for it in conditions if "__name__" not in source.code(it.test)]
    return others[-1] if others else statement
