"""Weights that each rank changes by values of its own, and metrics of one rank's part."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Expression, Origin
from ddpdoctor.program.files import FUNCTIONS, dotted
from ddpdoctor.program.ways import Way
from ddpdoctor.unreached.lines import BECAUSE, DDP, UnreachedLines, path_of
from ddpdoctor.unreached.sights import Sight

_DRAWN = ("normal_", "uniform_", "random_", "bernoulli_", "trunc_normal_")
"""Methods of tensors that fill them with random numbers."""
_SET = ("copy_", "add_", "mul_", "lerp_", "fill_", "zero_", "sub_", "div_", *_DRAWN)
_OF_LAYERS = ("weight", "bias")
"""The parameters of torch's own layers."""
_SHOWS = ("builtins.print", "json.dump", "logging.info", "wandb.log", "mlflow.log_metric")
_NO_GRAD = ("torch.no_grad", "torch.inference_mode")


def changed_apart(unreached: UnreachedLines) -> Iterator[Sight]:
    """Parameters of wrapped models that each rank sets to something else, and that nothing sends afterwards."""
    for call in unreached.calls_of_methods(_SET) if unreached.is_wrapped else ():
        owner = call.owner
        if owner is None or not _is_parameter(owner) or _is_sent(unreached, call):
            continue
        for way in unreached.ways(call):
            if not _is_after_wrap(unreached, owner, way):
                continue
            if (found := _differs(unreached, call, way)) is not None:
                why, evidence = found
                yield Sight(call.where, {"what": owner.text, "why": why}, evidence)


def _differs(
    unreached: UnreachedLines, call: Expression, way: Way
) -> tuple[str, tuple[Evidence, ...]] | None:
    for value in call.arguments:
        source = unreached.own_source(value)
        if source is not None:
            return BECAUSE[source.origin], path_of(source, call.where)
    if call.method in _DRAWN and unreached.seeds_apart:
        return "random numbers, which each rank draws from its own seed", ()
    for condition in way.conditions:
        decision = unreached.decision(condition)
        if decision is not None and decision.source.origin in (Origin.RANK, Origin.OWN_DATA):
            because = BECAUSE[decision.source.origin]
            return f"a condition on {because}", decision.evidence(because)
    return None


def _is_parameter(owner: Expression) -> bool:
    """Whether it is a parameter of one of torch's layers, or what ``.data`` gives of it."""
    node = owner.node
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return _is_parameter(owner.inner(node.value))
    if not isinstance(node, ast.Attribute) or node.attr not in _OF_LAYERS:
        return False
    return any(it.startswith("torch.nn.") for it in owner.inner(node.value).classes)


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


def shown_of_a_part(unreached: UnreachedLines) -> Iterator[Sight]:
    """Results of evaluations of shards that one rank prints, writes, or compares."""
    for call in unreached.calls(_SHOWS):
        for way in unreached.ways(call):
            if any(it.by_rank for it in way.conditions):
                for value in call.arguments:
                    yield from _of_a_part(unreached, value, call.where)
    for file in unreached.program.files.values():
        for node in file.scopes:
            if isinstance(node, ast.If) and isinstance(node.test, ast.BoolOp):
                test = Expression(unreached.program, file, node.test)
                if unreached.is_unreached(test.where) and _has_rank(test):
                    for part in test.parts():
                        yield from _of_a_part(unreached, part, test.where)


def _has_rank(test: Expression) -> bool:
    return any(it.origins.only(Origin.RANK) and Origin.RANK in it.origins.kinds for it in test.parts())


def _of_a_part(unreached: UnreachedLines, value: Expression, at: Where) -> Iterator[Sight]:
    for piece in value.pieces():
        source = unreached.own_source(piece)
        if source is not None and source.origin is Origin.OWN_DATA and _is_evaluated(unreached, piece):
            yield Sight(at, {"what": piece.text}, path_of(source, at))
            return


def _is_evaluated(unreached: UnreachedLines, value: Expression) -> bool:
    """Whether a model is called without gradients on the way, and what it gives is summed up by a loop."""
    models = (it for it in value.made_of() if _calls_module(it))
    return any(_is_without_gradients(unreached, it) for it in models)


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
