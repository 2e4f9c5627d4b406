"""Weights that each rank changes by values of its own, and metrics of one rank's part."""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Expression, Origin
from ddpdoctor.program.files import FUNCTIONS, dotted
from ddpdoctor.program.ways import Way, ways_to
from ddpdoctor.unreached.files import CHECKPOINTS
from ddpdoctor.unreached.lines import BECAUSE, DDP, Sight, UnreachedLines, path_of
from ddpdoctor.unreached.sent import GIVE_ALL

_DRAWN = ("normal_", "uniform_", "random_", "bernoulli_", "trunc_normal_")
"""Methods of tensors that fill them with random numbers."""
_SET = (
    *("copy_", "add_", "mul_", "lerp_", "fill_", "zero_", "sub_", "div_", "addcmul_", "index_copy_"),
    *_DRAWN,
)
_INITS = "torch.nn.init."
_FILL = ("zeros_", "ones_", "constant_", "eye_", "dirac_")
"""Functions of torch.nn.init that draw nothing."""
_OF_LAYERS = ("weight", "bias")
"""The parameters of torch's own layers."""
_LAYERS = ("modules", "named_modules", "children", "named_children")
_ALL = ("parameters", "named_parameters")
"""Methods that give the parameters of a module."""
_SHOWN = "torch.utils.tensorboard.SummaryWriter."
_SHOWS = (
    *("builtins.print", "json.dump", "wandb.log", "mlflow.log_metric", "tqdm.write", "builtins.open.write"),
    *(f"logging.{it}{level}" for it in ("", "getLogger.") for level in ("info", "warning", "debug", "log")),
    *(f"{_SHOWN}{it}" for it in ("add_scalar", "add_scalars")),
    "pathlib.Path.write_text",
)
_PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
_NO_GRAD = ("torch.no_grad", "torch.inference_mode")


def weights_set_apart(unreached: UnreachedLines) -> Iterator[Sight]:
    """What ranks set by themselves in the weights of wrapped models, by a change or by a load."""
    yield from _changed_apart(unreached)
    yield from _loaded_by_some(unreached)


@dataclass(frozen=True)
class _Change:
    """A line that sets a tensor to something else."""

    at: Expression
    tensor: Expression
    values: tuple[Expression, ...]
    draws: bool = False


def _changes(unreached: UnreachedLines) -> Iterator[_Change]:
    for call in unreached.calls_of_methods(_SET):
        if call.owner is not None:
            yield _Change(call, call.owner, tuple(call.arguments), call.method in _DRAWN)
    for call in unreached.calls((), lambda name: name.startswith(_INITS), ends="_"):
        if (given := call.argument(0, "tensor")) is not None:
            yield _Change(call, given, tuple(call.arguments[1:]), call.method not in _FILL)
    for target, value in unreached.program.assigned():
        node = target.node
        if isinstance(node, ast.Subscript):
            yield _Change(target, target.inner(node.value), (value, target.inner(node.slice)))
        elif target.is_attribute("data"):
            yield _Change(target, target, (value,))


def _changed_apart(unreached: UnreachedLines) -> Iterator[Sight]:
    """Parameters of wrapped models that each rank sets to something else, and that nothing sends afterwards."""
    for change in _changes(unreached) if unreached.is_wrapped else ():
        if _is_parameter(unreached, change.tensor) and not _is_sent(unreached, change.at):
            yield from _apart(unreached, change)


def _apart(unreached: UnreachedLines, change: _Change, setting: str = "") -> Iterator[Sight]:
    """The ways by which ranks come to a change of a parameter, or of a setting, that differs between them."""
    for way in unreached.ways(change.at):
        if setting or _is_after_wrap(unreached, change.tensor, way):
            by = [Origin.OWN_DATA] if setting else [Origin.RANK, Origin.OWN_DATA]
            for why, evidence in _differs(unreached, change, way, by):
                yield Sight(change.at.where, {"what": setting or change.tensor.text, "why": why}, evidence)


def _loaded_by_some(unreached: UnreachedLines) -> Iterator[Sight]:
    """Wrapped models into which only some ranks load a state before training goes on."""
    for call in unreached.calls_of_methods(("load_state_dict",)) if unreached.is_wrapped else ():
        if unreached.sends_weights or _is_sent(unreached, call):
            continue
        for way in unreached.ways(call):
            owner = replace(call, context=way.context).owner
            decision = unreached.decided_by([Origin.RANK], way.conditions)
            if owner and decision and _is_wrapped(owner) and _is_trained_after(unreached, way):
                words = {"what": owner.text, "why": f"a condition on {decision.because}"}
                yield Sight(call.where, words, decision.evidence)


def _is_wrapped(owner: Expression) -> bool:
    """Whether it is a wrapper or the very module of one, and no copy."""
    parts = [owner, *owner.made_of()]
    modules = (it for it in parts if isinstance(it.node, ast.Attribute) and it.node.attr == "module")
    of_wrapper = any(DDP in it.inner(it.node.value).classes for it in modules)  # type: ignore[attr-defined]
    return (of_wrapper or DDP in owner.classes) and not any("copy.deepcopy" in it.called for it in parts)


def _is_trained_after(unreached: UnreachedLines, way: Way) -> bool:
    lines = [at for backward in unreached.backwards for it in ways_to(backward) for at in it.lines]
    return any(unreached.program.is_ahead(line, other) for line in way.lines for other in lines)


def set_apart(unreached: UnreachedLines) -> Iterator[Sight]:
    """Settings of optimizers, as ``group["lr"]``, that each rank changes by values of its own."""
    yield from _rates_by_own_loss(unreached)
    for target, value in unreached.program.assigned() if unreached.is_wrapped else ():
        node = target.node
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)):
            continue
        held = target.inner(node.value)
        if not any(it.is_attribute("param_groups") for it in held.made_of()):
            continue
        yield from _apart(unreached, _Change(target, target, (value,)), str(node.slice.value))


def _rates_by_own_loss(unreached: UnreachedLines) -> Iterator[Sight]:
    """Steps of ReduceLROnPlateau by a loss of training that each rank has of its own."""
    for value, at in _plateaus(unreached) if unreached.is_wrapped else ():
        source = unreached.own_source(value)
        if source is not None and source.origin is Origin.OWN_DATA and not _is_evaluated(unreached, value):
            yield Sight(at, {"what": "lr", "why": BECAUSE[source.origin]}, path_of(source, at))


def _differs(
    unreached: UnreachedLines, change: _Change, way: Way, by: Collection[Origin]
) -> Iterator[tuple[str, tuple[Evidence, ...]]]:
    """Why a change differs between ranks, if it does, and where that comes from."""
    given = [it for it in (change.at.argument(None, "generator"),) if it is not None]
    sources = (unreached.own_source(replace(it, context=way.context)) for it in (*change.values, *given))
    if source := next(filter(None, sources), None):
        yield BECAUSE[source.origin], path_of(source, change.at.where)
    elif change.draws and not given and not unreached.seeds_alike("torch."):
        yield "random numbers, which each rank draws from its own seed", ()
    elif decision := unreached.decided_by(by, way.conditions):
        yield f"a condition on {decision.because}", decision.evidence


def _is_parameter(unreached: UnreachedLines, tensor: Expression) -> bool:
    """Whether it is a parameter of a module, a buffer that no forward sends, or what ``.data`` gives of one."""
    node = tensor.node
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return _is_parameter(unreached, tensor.inner(node.value))
    if (over := tensor.turns_of) is not None:
        return _goes_over(over, _ALL)
    if not isinstance(node, ast.Attribute):
        return False
    owner = tensor.inner(node.value)
    of_layer = node.attr in _OF_LAYERS and (
        _goes_over(owner.turns_of, _LAYERS) or any(it.startswith("torch.nn.") for it in owner.classes)
    )
    is_own = any("torch.nn.Parameter" in it.called for it in tensor.values if it is not None)
    return of_layer or is_own or (not unreached.broadcasts_buffers and node.attr in owner.buffers)


def _goes_over(over: Expression | None, methods: Collection[str]) -> bool:
    return over is not None and over.method in methods and over.owner is not None and _is_trained(over.owner)


def _is_trained(module: Expression) -> bool:
    """Whether it is a wrapped module, or what one is made of, and no copy of it."""
    return _is_wrapped(module) or module.program.is_given_to(module, (DDP,), "module")


def _is_sent(unreached: UnreachedLines, call: Expression) -> bool:
    """Whether a collective in the same function may send it, or one that a caller gives all weights to."""
    scope = call.file.function_at(call.where.line)
    return unreached.sends_weights or any(
        it.file is call.file and it.file.function_at(it.where.line) is scope and "barrier" not in it.text
        for it in unreached.collectives
        if call.file.function_at(it.where.line) is scope and (it.where.line or 0) > (call.where.line or 0)
    )


def _is_after_wrap(unreached: UnreachedLines, owner: Expression, way: Way) -> bool:
    """Whether a model is wrapped by then: it is reached through its wrapper, or a line of the way is behind it."""
    for value in (owner, *owner.made_of()):
        inner = (it for it in ast.walk(value.node) if isinstance(it, ast.Attribute) and it.attr == "module")
        if any(DDP in value.inner(it.value).classes for it in inner):
            return True
    wraps = [it.where for it in unreached.collectives if DDP in it.called]
    return any(unreached.program.is_ahead(wrap, line) for wrap in wraps for line in way.lines)


# Metrics.


def used_of_a_part(unreached: UnreachedLines) -> Iterator[Sight]:
    """Results of evaluations of shards that one rank prints or writes, or by which something is chosen."""
    for value, at in (*_shown(unreached), *_decides(unreached)):
        yield from _of_a_part(unreached, value, at)


_Used: TypeAlias = Iterator[tuple[Expression, Where]]
"""A value, and the line that uses it."""


def _shown(unreached: UnreachedLines) -> _Used:
    for call in unreached.calls(_SHOWS):
        for way in unreached.ways(call):
            if any(it.by_rank for it in way.conditions):
                yield from ((value, call.where) for value in call.arguments)


def _decides(unreached: UnreachedLines) -> _Used:
    yield from _plateaus(unreached)
    for call in unreached.calls(CHECKPOINTS):
        for condition in (it for way in unreached.ways(call) for it in way.conditions if not it.by_rank):
            yield from ((part, condition.at) for part in condition.test.parts())
    for file in unreached.program.files.values():
        tests = (it.test for it in file.scopes if isinstance(it, ast.If) and isinstance(it.test, ast.BoolOp))
        for test in (Expression(unreached.program, file, it) for it in tests):
            parts = [*test.parts()] if unreached.is_unreached(test.where) else []
            if any(it.only(Origin.RANK) and Origin.RANK in it.origins.kinds for it in parts):
                yield from ((part, test.where) for part in parts)


def _plateaus(unreached: UnreachedLines) -> _Used:
    for call in unreached.calls_of_methods(("step",)):
        if call.owner is not None and _PLATEAU in call.owner.classes and unreached.ways(call):
            yield from ((value, call.where) for value in call.arguments[:1])


def _of_a_part(unreached: UnreachedLines, value: Expression, at: Where) -> Iterator[Sight]:
    for piece in value.pieces():
        source = unreached.own_source(piece, in_order=True)
        if source is not None and source.origin is Origin.OWN_DATA and _is_evaluated(unreached, piece):
            yield Sight(at, {"what": piece.text}, path_of(source, at))
            return


def _is_evaluated(unreached: UnreachedLines, value: Expression) -> bool:
    """Whether a model is called without gradients on the way, and no collective is given what becomes of it.

    Under which condition one is given that is not asked: mostly whether there are several ranks.
    """
    parts = [*value.made_of()]
    gives = [it for it in parts if it.is_call and not it.called.isdisjoint(GIVE_ALL)]
    evaluated = [it for it in parts if _calls_module(it) and _is_without_gradients(unreached, it)]
    return any(
        all(unreached.sent.is_early(call, it, value) for call in gives)
        and it.node
        in {part.node for part in value.made_of(partial(unreached.sent.is_sent, filled=it, used=value))}
        for it in evaluated
    )


def _calls_module(value: Expression) -> bool:
    node = value.node
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return False
    classes = value.inner(node.func).classes
    return DDP in classes or any(it.startswith("torch.nn.Module") for it in classes)


def _is_without_gradients(unreached: UnreachedLines, call: Expression) -> bool:
    under = unreached.program.contexts(call.where)[0]
    function = call.file.function_at(call.where.line)
    decorators = function.decorator_list if isinstance(function, FUNCTIONS) else []
    named = [it.func if isinstance(it, ast.Call) else it for it in decorators]
    names = {name for it in under for name in it.called}
    names |= {name for it in named for name in call.inner(it).names}
    return not names.isdisjoint(_NO_GRAD) or bool({dotted(it) for it in named} & set(_NO_GRAD))
