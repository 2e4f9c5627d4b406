"""Draws the same random numbers on every rank where data is divided or made."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, callee, calls, dotted, qualified, use, use_module
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import value_of

cures = ("DD104", "DD107", "DD111")
_BY_RANK = re.compile(r"\s*[+*]\s*(?:\w+\.)*(?:get_)?rank(?:\(\))?(?:\s*[+*]\s*\d+)?$")
_ORDERS = ("shuffle", "permutation", "permuted", "sample", "choice", "randperm", "train_test_split")
"""What draws an order."""
_GENERATORS = ("Random", "default_rng", "RandomState")


def apply(case: Case) -> str:
    """A generator for random_split; a seed of its own for a shuffle; a seed without the rank."""
    source = case.source
    for split in case.calls("random_split"):
        if not argument(split, "generator"):
            source.add_argument(split, f"generator={use(source, 'torch.Generator')}().manual_seed(0)")
            return "random_split with a generator"
    if any(_seed_order(source, call) for call in case.calls(*_ORDERS)):
        return "a shuffle with a seed"
    for call in calls(source, "DistributedSampler"):
        seed = argument(call, "seed")
        if seed and _strip(source, seed.value):
            return "the same seed for the sampler on every rank"
    for call in [call for call in source.all(cst.Call) if qualified(source, call.func) == "random.shuffle"]:
        if source.line(call) <= max(case.line, 0) + 200 and _seed_order(source, call):
            return "a shuffle with a seed"
    for call in source.all(cst.Call):
        if (
            callee(source, call) in ("manual_seed", "seed")
            and call.args
            and _strip(source, call.args[0].value)
        ):
            return "the same seed on every rank"
    raise CannotPatch("no random numbers that depend on the rank are found in this file")


def _seed_order(source: Source, call: Node) -> bool:
    """Draw an order by a generator of its own, which every rank seeds alike."""
    name, seed = qualified(source, call.func) or "", _seed(source, call)
    owner, _, method = name.rpartition(".")
    made = value_of(source, call.func.value) if isinstance(call.func, cst.Attribute) else None
    if seed is None or argument(call, "generator") or argument(call, "random_state"):
        return False
    if name == "torch.randperm":
        # A generator draws on its own device only.
        if argument(call, "device"):
            return False
        source.add_argument(call, f"generator={use(source, 'torch.Generator')}().manual_seed({seed})")
    elif method == "train_test_split":
        source.add_argument(call, f"random_state={seed}")
    elif isinstance(made, cst.Call) and callee(source, made) in _GENERATORS:
        source.replace(call.func.value, f"{source.code(made.func)}({seed})")
    elif owner == "random" and method in ("shuffle", "sample"):
        source.replace(call.func, f"{use_module(source, 'random')}.Random({seed}).{method}")
    elif owner == "numpy.random" and method in ("shuffle", "permutation", "choice"):
        generator = (
            f"{source.code(call.func.value)}.default_rng"
            if isinstance(call.func, cst.Attribute)
            else use(source, "numpy.random.default_rng")
        )
        source.replace(call.func, f"{generator}({seed}).{method}")
    else:
        return False
    return True


def _seed(source: Source, call: Node) -> str | None:
    """The seed of an order: the epoch where there is one, lest every epoch has the same; None where each turn of a loop
    would have the same."""
    inner = call
    for node in source.above(call):
        if isinstance(node, cst.FunctionDef):
            parameters = [parameter.name.value for parameter in node.params.params]
            return "epoch" if "epoch" in parameters else "0"
        if isinstance(
            node, (cst.While, cst.Lambda, cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
        ):
            # What a comprehension goes over is made once.
            if not isinstance(inner, cst.CompFor):
                return None
        elif isinstance(node, cst.CompFor) and inner is not node.iter:
            return None
        elif isinstance(node, cst.For) and inner is node.body:
            counts = isinstance(node.iter, cst.Call) and callee(source, node.iter) in ("range", "count")
            name = dotted(node.target)
            if counts:
                return None if name in (None, "_") else name
        inner = node
    return "0"


def _strip(source: Source, seed: Node) -> bool:
    """Take the rank out of a seed."""
    code = source.code(value_of(source, seed) or seed)
    plain = _BY_RANK.sub("", code)
    if re.fullmatch(r"(?:\w+\.)*(?:get_)?rank(?:\(\))?(?:\s*[+*]\s*\d+)?", code):
        plain = "0"
    if plain != code:
        source.replace(seed, plain)
    return bool(plain != code)
