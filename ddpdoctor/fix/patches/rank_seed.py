"""Seeds each rank by its number, once the weights are equal."""

from __future__ import annotations

import ast

from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import calls, is_method, means, rank
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.writing import with_group
from ddpdoctor.program.known import GENERATORS

cures = ("DD101", "DD109")
changes = ("samples", "loss")
after = ("rank_draws",)
_OTHERS = ("random.seed", "numpy.random.seed")
"""Seeds of the generators beside torch's."""


def apply(case: Case) -> str:
    """Of a generator that the line makes, its seed. Behind the wrap, the seed that the line sets; else
    ``torch.manual_seed``, and the others that the file sets."""
    if own := [
        call for call in case.source.on_line(case.line, ast.Call) if _seeds_generator(case.source, call)
    ]:
        seed = own[0].args[0]
        case.source.replace(seed, f"{case.source.code(seed)} + {rank(case.source, own[0])}")
        return "a generator of each rank's seed"
    source, call = case.wraps()[-1]
    statement = source.statement(call)
    seeds = [seed for seed in calls(source, *_OTHERS) if seed.args]
    at_line = [seed for seed in seeds if source is case.source and seed.lineno == case.line]
    lines = [] if at_line else [f"{use(source, 'torch.manual_seed')}({_of_torch(source, statement)})"]
    lines += dict.fromkeys(_again(source, statement, seed) for seed in at_line or seeds)
    line = "\n".join(lines)
    # A wrap needs a process group, so that its branch has one.
    is_either = any(isinstance(node, ast.IfExp) for node in source.within_function(call))
    source.insert_after(statement, with_group(source, line) if is_either else line)
    return "random numbers of each rank behind the wrap"


def _seeds_generator(source: Source, call: Node) -> bool:
    makes = means(source, call.func, *GENERATORS)
    seeds = is_method(call, "manual_seed") and not means(
        source, call.func, "torch.manual_seed", "torch.cuda.manual_seed"
    )
    return bool(call.args) and (makes or seeds)


def _of_torch(source: Source, at: Node) -> str:
    return f"{use(source, 'torch.initial_seed')}() + {rank(source, at, plain=True)}"


def _again(source: Source, at: Node, seed: Node) -> str:
    """A seed as it is set, with the rank; by that of torch where it is set in another function."""
    value, function = seed.args[0], source.code(seed.func)
    if isinstance(value, ast.Constant) or source.scope(seed) is source.scope(at):
        first = "" if source.code(value) == "0" else f"{source.code(value)} + "
        return f"{function}({first}{rank(source, at, plain=True)})"
    return f"{function}(({_of_torch(source, at)}) % 2**32)"
