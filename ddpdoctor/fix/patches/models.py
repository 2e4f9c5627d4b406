"""What is wrapped, when, and what is called."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import DDP, DIST, argument, dotted, models_of
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
        condition = _condition(source, name)
        if condition is not None:
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


@patch("DD203")
def wrap_others(case: Case) -> str:
    """Wrap each module that an optimizer trains beside the model; average gradients of single parameters by hand."""
    source = case.source
    titles = [*_wrap(source), *_average(case, source)]
    if not titles:
        raise CannotPatch("what the optimizer trains beside the model has no name in this file")
    return ", ".join(titles)


def _wrap(source: Source) -> list[str]:
    models = [model for made in source.optimizers() for model in models_of(made) if dotted(model)]
    titles = []
    for name, model in {source.code(model): model for model in models}.items():
        value = source.value_of(model)
        if isinstance(value, ast.Call) and not source.is_wrapped(model):
            source.replace(value, f"{source.use(DDP)}({source.code(value)})")
            titles.append(f"{name} wrapped, too")
    return titles


def _average(case: Case, source: Source) -> list[str]:
    """Parameters that are none of a module: their gradients are averaged before the optimizer takes its step."""
    statement = _step(source) or case.statement
    read = [name for made in source.optimizers() for name in source.all(ast.Name, within=made)]
    names = dict.fromkeys(name.id for name in read if _is_parameter(source, source.value_of(name)))
    for name in names:
        reduced = f"{source.use(f'{DIST}.all_reduce')}({name}.grad)"
        mean = f"{name}.grad /= {source.world_size(statement, plain=True)}"
        source.insert_before(statement, source.with_group(f"{reduced}\n{mean}"))
    return [f"the gradient of {name} averaged" for name in names]


def _step(source: Source) -> Node | None:
    """The first statement in which an optimizer of this file takes a step."""
    owners = {source.assigned_to(made) for made in source.optimizers()}
    steps = [call for call in source.calls("step") if source.code(call.func).rpartition(".")[0] in owners]
    return source.statement(steps[0]) if steps else None


def _is_parameter(source: Source, value: Node) -> bool:
    return source.is_call_of(value, "torch.nn.Parameter", "torch.nn.parameter.Parameter")


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


@patch("DD223", leaves_choice=True)
def unwrap(case: Case) -> str:
    """Take the wrap away of a module without trainable parameters: there is nothing to average."""
    source, call = case.call_at(case.finding.where, DDP)
    statement, module = source.statement(call), source.code(call.args[0])
    is_alone = isinstance(statement, ast.Assign) and statement.value is call
    if is_alone and [source.code(target) for target in statement.targets] == [module]:
        source.delete(statement)
    else:
        source.replace(call, module)
    return f"{module} left unwrapped"


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


@patch("DD221", changes=("loss",))
def sync_batchnorm_on_gpus(case: Case) -> str:
    """The conversion to SyncBatchNorm under ``torch.cuda.is_available()``, in front of the wrap."""
    source, wrap = case.wraps()[0]
    made = source.calls("convert_sync_batchnorm")
    if not made or not wrap.args:
        raise CannotPatch("BatchNorm is converted in another file")
    convert, statement = made[0], source.statement(made[0])
    model = argument(convert, 0, "module")
    if model is None or not isinstance(statement, ast.Assign):
        raise CannotPatch("the conversion is given no model")
    cuda, function = f"{source.use('torch.cuda')}.is_available()", source.code(convert.func)
    target = source.code(statement.targets[0])
    if convert.lineno > wrap.lineno:
        at = source.statement(wrap)
        name = source.code(at.targets[0]) if isinstance(at, ast.Assign) else target
        inner = source.code(wrap.args[0])
        source.insert_before(at, f"{name} = {inner}\nif {cuda}:\n\t{name} = {function}({name})")
        source.replace(wrap.args[0], name)
        source.delete(statement)
    elif statement.value is convert and source.code(model) == target:
        source.indent_lines(statement, f"if {cuda}:")
    else:
        source.replace(convert, source.code(model))
        source.insert_after(statement, f"if {cuda}:\n\t{target} = {function}({target})")
    return "SyncBatchNorm on GPUs, before the wrap"


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
