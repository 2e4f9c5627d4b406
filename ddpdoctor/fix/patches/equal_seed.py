"""Draws the same random numbers on every rank where data is divided or made."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, callee, calls, qualified, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import value_of

_BY_RANK = re.compile(r"\s*[+*]\s*(?:\w+\.)*(?:get_)?rank(?:\(\))?(?:\s*[+*]\s*\d+)?$")


def apply(case: Case) -> str:
    """A generator for random_split; a seed of its own for a shuffle; a seed without the rank."""
    source = case.source
    for split in case.calls("random_split"):
        if not argument(split, "generator"):
            source.add_argument(split, f"generator={use(source, 'torch.Generator')}().manual_seed(0)")
            return "random_split with a generator"
    for call in calls(source, "DistributedSampler"):
        seed = argument(call, "seed")
        if seed and _strip(source, seed.value):
            return "the same seed for the sampler on every rank"
    for call in [call for call in source.all(cst.Call) if qualified(source, call.func) == "random.shuffle"]:
        if source.line(call) <= max(case.line, 0) + 200:
            source.replace(call.func, f"{source.code(call.func.value)}.Random(0).shuffle")
            return "a shuffle with a seed"
    for call in source.all(cst.Call):
        if (
            callee(source, call) in ("manual_seed", "seed")
            and call.args
            and _strip(source, call.args[0].value)
        ):
            return "the same seed on every rank"
    raise CannotPatch("no random numbers that depend on the rank are found in this file")


def _strip(source: Source, seed: Node) -> bool:
    """Take the rank out of a seed."""
    code = source.code(value_of(source, seed) or seed)
    plain = _BY_RANK.sub("", code)
    if re.fullmatch(r"(?:\w+\.)*(?:get_)?rank(?:\(\))?(?:\s*[+*]\s*\d+)?", code):
        plain = "0"
    if plain != code:
        source.replace(seed, plain)
    return bool(plain != code)
