"""What is wrapped, when, and what is called."""

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import DDP, argument, dotted, models_of
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.program.files import LOOPS


@patch("DD227")
def wrap_model(case: Case) -> str:
    """Wrap the model before the optimizer is made; where a wrap depends on a GPU, in the other case, too."""
    source = case.source
    made = [call for call in source.optimizers() if any(map(dotted, models_of(call)))]
    if not made:
        raise CannotPatch("no optimizer over a model is made in this file")
    models = {source.code(node): node for node in models_of(made[0]) if dotted(node)}
    wrapper = source.use(DDP)
    for name, model in models.items():
        if (condition := _condition(source, name)) is not None:
            margin, end = source.margin(condition), source.span(condition)[1]
            lines = f"\n{margin}else:\n{margin}{source.indent}{name} = {wrapper}({name})"
            source.replace_span(end, end, lines)
        elif source.value_of(model) is model and not source.program.flow.copies(source.point(model)):
            raise CannotPatch(f"it is not known what {name} is")
        else:
            source.insert_before(source.statement(made[0]), source.with_group(f"{name} = {wrapper}({name})"))
    return f"{', '.join(models)} wrapped in DistributedDataParallel"


def _condition(source: Source, name: str) -> Node | None:
    """The if without else in which the model is wrapped."""
    for call in source.calls(DDP):
        wrap, around = source.statement(call), source.file.parents[source.statement(call)]
        is_of_model = isinstance(wrap, ast.Assign) and source.code(wrap.targets[0]) == name
        if is_of_model and isinstance(around, ast.If) and not around.orelse:
            return around
    return None


@patch("DD205", "DD206")
def wrap_after_change(case: Case) -> str:
    """Wrap after the last statement that changes the model before its optimizer is made."""
    if case.calls("register_comm_hook"):
        raise CannotPatch("a communication hook keeps the ranks apart, wherever the model is wrapped")
    moved = [name for source, call in case.wraps() if (name := _move(source, call))]
    if not moved:
        raise CannotPatch("nothing changes the model between its wrap and its optimizer")
    return f"{moved[0]} wrapped after it is changed"


def _move(source: Source, call: Node) -> str | None:
    name, wrap = source.assigned_to(call), source.statement(call)
    changes = _changes(source, wrap, name)
    if not changes:
        return None
    inner = call.args[0]
    rest = source.text[source.span(inner)[1] : source.span(call)[1]].replace(f"\n{source.margin(wrap)}", "\n")
    if source.code(inner) == name:
        source.delete(wrap)
    else:
        source.replace(call, source.code(inner))
    for node in source.all(ast.Attribute, within=changes):
        if source.code(node) == f"{name}.module":
            source.replace(node, name)
    source.insert_after(changes[-1], f"{name} = {source.code(call.func)}({name}{rest}")
    return name


def _changes(source: Source, wrap: Node, name: str) -> list[Node]:
    """The statements behind the wrap, up to the last that has to do with the model before training begins."""
    behind, last = source.behind(wrap), 0
    for number, statement in enumerate(behind):
        is_end = isinstance(statement, LOOPS) or source.calls("parameters", within=statement)
        if is_end or source.all(ast.Return, within=statement):
            break
        if any(dotted(it) == name for it in source.all(ast.Name, ast.Attribute, within=statement)):
            last = number + 1
    return behind[:last]


@patch("DD224")
def device_ids(case: Case) -> str:
    """``device_ids=[local_rank] if torch.cuda.is_available() else None``."""
    wrappers = [wrapper for recording in case.trace.recorded.values() for wrapper in recording.wrappers]
    if wrappers and not any(wrapper.failed for wrapper in wrappers):
        raise CannotPatch("it is not known which GPU is meant: the one of the module, or that of device_ids")
    changed = False
    for source, call in case.wraps():
        for name in ("device_ids", "output_device"):
            given = argument(call, None, name)
            code = source.code(given) if given is not None else "None"
            if isinstance(given, ast.IfExp) or code == "None":
                continue
            value = f"[{code}]" if name == "device_ids" and not isinstance(given, ast.List) else code
            source.replace(given, f"{value} if {source.use('torch.cuda')}.is_available() else None")
            changed = True
    if not changed:
        raise CannotPatch("no device_ids are given")
    return "device_ids only where there is a GPU"


@patch("DD201")
def call_wrapper(case: Case) -> str:
    """Call the wrapper in the statement that calls the module inside."""
    source, statement = case.source, case.statement
    for call in source.all(ast.Call, within=statement):
        name = call.func
        is_inside = isinstance(name, ast.Attribute) and name.attr == "module" and dotted(name)
        wrapper = source.code(name.value) if is_inside else _wrapper_of(source, call)
        if wrapper and (not is_inside or source.is_wrapped(name.value)):
            source.replace(name, wrapper)
            return f"{wrapper} called, not {source.code(name)}"
    raise CannotPatch("the line does not call the wrapped module itself")


def _wrapper_of(source: Source, call: Node) -> str | None:
    """The name of the wrapper of what is called, where both have names in this function."""
    for other in source.calls(DDP):
        wraps = other.args and source.code(other.args[0]) == source.code(call.func)
        if wraps and source.scope(other) in (source.scope(call), source.tree):
            name = source.assigned_to(other)
            return name if name != source.code(call.func) else None
    return None
