"""Random numbers that ranks have to draw alike, or each its own."""

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import SAMPLER, argument, is_method
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source
from ddpdoctor.program import Origin
from ddpdoctor.program.files import FUNCTIONS
from ddpdoctor.program.known import GENERATORS

_RANDOM = ("random.shuffle", "random.sample")
_NUMPY = tuple(f"numpy.random.{name}" for name in ("shuffle", "permutation", "choice"))
_SPLIT = "sklearn.model_selection.train_test_split"
_ORDERS = (*_RANDOM, *_NUMPY, "torch.randperm", _SPLIT, "shuffle", "permutation", "permuted")
"""What draws an order; the last are methods of generators."""
_GENERATORS = ("random.Random", "numpy.random.default_rng", "numpy.random.RandomState")
_SEEDS = ("torch.manual_seed", "torch.cuda.manual_seed_all", "random.seed", "numpy.random.seed")
_LOOPS = (ast.While, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OTHERS = ("random.seed", "numpy.random.seed")
"""Seeds of the generators beside torch's."""


@patch("DD104", "DD107", "DD111", changes=("samples", "loss"))
def equal_seed(case: Case) -> str:
    """A generator for random_split; a seed of its own for a shuffle; a seed without the rank."""
    source = case.source
    for split in case.calls("torch.utils.data.random_split"):
        if not argument(split, None, "generator"):
            source.add_argument(split, f"generator={source.use('torch.Generator')}().manual_seed(0)")
            return "random_split with a generator"
    if any([_seed_order(source, call) for call in case.calls(*_ORDERS)]):
        return "a shuffle with a seed"
    for call in source.calls(SAMPLER):
        seed = argument(call, 4, "seed")
        if seed is not None and _strip(source, seed):
            return "the same seed for the sampler on every rank"
    if any(_seed_order(source, call) for call in source.calls("random.shuffle")):
        return "a shuffle with a seed"
    if any(call.args and _strip(source, call.args[0]) for call in source.calls(*_SEEDS)):
        return "the same seed on every rank"
    raise CannotPatch("no random numbers that depend on the rank are found in this file")


def _seed_order(source: Source, call: Node) -> bool:
    """Draw an order by a generator of its own, which every rank seeds alike."""
    seed, names = _seed(source, call), source.expression(call.func).names
    options = [argument(call, None, name) for name in ("generator", "random_state", "device")]
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    method = (call.func.attr if owner is not None else next(iter(names), "")).rpartition(".")[2]
    made = source.value_of(owner) if owner is not None else None
    if seed is None or any(option is not None for option in options):
        return False
    if "torch.randperm" in names:
        source.add_argument(call, f"generator={source.use('torch.Generator')}().manual_seed({seed})")
    elif _SPLIT in names:
        source.add_argument(call, f"random_state={seed}")
    elif isinstance(made, ast.Call) and source.expression(made.func).names & set(_GENERATORS):
        source.replace(owner, f"{source.code(made.func)}({seed})")
    elif names & set(_RANDOM):
        source.replace(call.func, f"{source.use('random')}.Random({seed}).{method}")
    elif names & set(_NUMPY):
        by_owner = f"{source.code(owner)}.default_rng" if owner is not None else ""
        generator = by_owner or source.use("numpy.random.default_rng")
        source.replace(call.func, f"{generator}({seed}).{method}")
    else:
        return False
    return True


def _seed(source: Source, call: Node) -> str | None:
    """The seed of an order: the epoch where there is one, lest every epoch has the same; None where each turn of a loop
    would have the same."""
    inner = call
    for node in source.above(call):
        if isinstance(node, FUNCTIONS):
            return next((it.arg for it in node.args.args if _counts(source, node, it)), "0")
        # What a comprehension goes over is made once.
        if isinstance(node, _LOOPS) and not isinstance(inner, ast.comprehension):
            return None
        if isinstance(node, ast.comprehension) and inner is not node.iter:
            return None
        if isinstance(node, ast.For) and inner in node.body and source.is_numbered(node.iter):
            name = node.target.id if isinstance(node.target, ast.Name) else "_"
            return None if name == "_" else name
        inner = node
    return "0"


def _counts(source: Source, function: Node, given: Node) -> bool:
    """Whether each call of a function gives a parameter the number of a round."""
    values = [(there, value) for there, _, value in source.arguments_for(function, given)]
    above = [(there, it) for there, value in values for it in there.above(value)]
    loops = [it for there, it in above if isinstance(it, ast.For) and there.is_numbered(it.iter)]
    targets = {it.target.id for it in loops if isinstance(it.target, ast.Name)}
    return bool(values) and all(isinstance(value, ast.Name) and value.id in targets for _, value in values)


def _strip(source: Source, seed: Node) -> bool:
    """Take the rank out of a seed."""
    value = source.value_of(seed)
    is_readable = source.scope(value) in (source.scope(seed), source.tree)
    if not is_readable or Origin.RANK not in source.expression(value).origins.kinds:
        return False
    source.replace(seed, _without_rank(source, value) or "0")
    return True


def _without_rank(source: Source, value: Node) -> str:
    """An expression without the terms that the rank decides; empty where it decides all of it."""
    if Origin.RANK not in source.expression(value).origins.kinds:
        return source.code(value)
    if isinstance(value, ast.BinOp):
        left, right = (_without_rank(source, side) for side in (value.left, value.right))
        if not left or not right:
            return left or right if isinstance(value.op, (ast.Add, ast.BitXor)) else ""
        code, of_left, of_right = map(source.code, (value, value.left, value.right))
        return code.replace(of_left, left).replace(of_right, right)
    if isinstance(value, ast.IfExp):
        return _without_rank(source, value.orelse)
    return ""


@patch("DD101", "DD109", changes=("samples", "loss"), leaves_choice=True)
def rank_seed(case: Case) -> str:
    """Of a generator that the line makes, its seed. Behind the wrap, the seed that the line sets; else
    ``torch.manual_seed``, and the others that the file sets."""
    here = case.source
    if own := [call for call in here.on_line(case.line, ast.Call) if _seeds_generator(here, call)]:
        seed = own[0].args[0]
        here.replace(seed, f"{here.code(seed)} + {here.rank(own[0])}")
        return "a generator of each rank's seed"
    source, call = case.wraps()[-1]
    statement = source.statement(call)
    seeds = [seed for seed in source.calls(*_OTHERS) if seed.args]
    at_line = [seed for seed in seeds if source is case.source and seed.lineno == case.line]
    lines = [] if at_line else [f"{source.use('torch.manual_seed')}({_of_torch(source, statement)})"]
    lines += dict.fromkeys(_again(source, statement, seed) for seed in at_line or seeds)
    line = "\n".join(lines)
    # A wrap needs a process group, so that its branch has one.
    is_either = any(isinstance(node, ast.IfExp) for node in source.within_function(call))
    source.insert_after(statement, source.with_group(line) if is_either else line)
    return "random numbers of each rank behind the wrap"


def _seeds_generator(source: Source, call: Node) -> bool:
    makes = source.means(call.func, *GENERATORS)
    of_all = source.means(call.func, "torch.manual_seed", "torch.cuda.manual_seed")
    return bool(call.args) and (makes or (is_method(call, "manual_seed") and not of_all))


def _of_torch(source: Source, at: Node) -> str:
    return f"{source.use('torch.initial_seed')}() + {source.rank(at, plain=True)}"


def _again(source: Source, at: Node, seed: Node) -> str:
    """A seed as it is set, with the rank; by that of torch where it is set in another function."""
    value, function = seed.args[0], source.code(seed.func)
    if isinstance(value, ast.Constant) or source.scope(seed) is source.scope(at):
        first = "" if source.code(value) == "0" else f"{source.code(value)} + "
        return f"{function}({first}{source.rank(at, plain=True)})"
    return f"{function}(({_of_torch(source, at)}) % 2**32)"
