"""The line that makes a dataset another one in each process (random numbers, a set's order, what a folder lists), which
seed ranks have in common, and what they share of the batches that no DataLoader gives them."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ddpdoctor.model import Where
from ddpdoctor.program import Expression, Origin, Program
from ddpdoctor.program.known import FOLDERS, GENERATORS, SEEDS, draws, puts_in_order
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.recorder.patches.calls import Seeded
from ddpdoctor.trace.recording import Recording

_SEEDED = ("generator", "random_state")
"""Arguments by which a draw is the same in every process."""


class Draw(IntEnum):
    """Why a line makes another dataset in each process; the likeliest first."""

    RANDOM = 1
    SET = 2
    FOLDER = 3


@dataclass(frozen=True)
class OrderDraw:
    """The line that puts samples in another order in each process."""

    where: Where
    kind: Draw
    stream: str | None
    """The global random stream that it draws from: ``torch``, ``numpy`` or ``python``."""


def dataset_draw(loader: Where | None, script: str) -> Where | None:
    """The line that draws, or lists in no order, what the dataset of the DataLoader holds that is constructed at
    ``loader``; None where none is seen."""
    dataset = _dataset(loader, script)
    draw = _likeliest(_draws(dataset)) if dataset else None
    return draw.where if draw else None


def draw_before_cut(loader: Where | None, script: str) -> OrderDraw | None:
    """The line that makes an order another one in each process, out of which ranks cut the parts that their datasets
    are; None where none is seen. ``loader`` is the line that constructs the DataLoader."""
    return draw_before_part(filter(None, [_dataset(loader, script)]))


def draw_before_part(values: Iterable[Expression]) -> OrderDraw | None:
    """The line that makes an order another one in each process, out of which ranks cut a part that one of these
    values is made of; None where none is seen, or a collective makes the order equal."""
    for part in (it for value in values for it in value.made_of(_is_in_any_order)):
        whole = _whole(part)
        if whole is None or Origin.REDUCED in whole.origins.kinds:
            continue
        if (draw := _likeliest(_draws(whole, only_order=True))) is not None:
            return draw
    return None


def generator_seed(forward: Where, script: str) -> Where | None:
    """The line that seeds the generator from which each turn of a loop draws what it gives to a forward; None where
    that is none, or has a seed that ranks do not share."""
    program = Program.holding(forward, script)
    for part in (it for call in program.calls_at(forward) for it in call.made_of()):
        of_object = any(name.startswith(f"{it}.") for name in part.called for it in GENERATORS)
        source = part.argument(None, "generator") or (part.owner if of_object else None)
        if source is None or not program.loops.is_repeated_with(forward, part.where):
            continue
        for made in source.made_of():
            seed = made.argument(0, "seed")
            seeds = made.method == "manual_seed" or not made.called.isdisjoint(GENERATORS)
            if seeds and seed and seed.only(Origin.ENVIRONMENT):
                return made.where
    return None


def _dataset(loader: Where | None, script: str) -> Expression | None:
    """What a line gives to a DataLoader as its dataset; None where it does not construct one."""
    program = Program.of(script)
    calls = (it for it in program.every_call() if loader and it.file.path == loader.file)
    made = (it for it in calls if it.spans(loader.line if loader else None))
    loaders = [it for it in made if any(name.endswith("DataLoader") for name in it.called)]
    return loaders[0].argument(0, "dataset") if loaders else None


def _likeliest(found: Iterable[OrderDraw]) -> OrderDraw | None:
    return min(found, key=lambda draw: draw.kind, default=None)


def _is_in_any_order(expression: Expression) -> bool:
    """Whether the order of what is in there does not matter: it is sorted, counted, or asked for a member."""
    node = expression.node
    if isinstance(node, ast.Compare):
        return any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
    return not expression.called.isdisjoint({"builtins.sorted", "builtins.len"})


def _draws(value: Expression, *, only_order: bool = False) -> Iterator[OrderDraw]:
    """What makes a value, or its order, another in each process; ``only_order`` leaves out draws that order nothing."""
    for part in value.made_of(_is_in_any_order):
        if (kind := _kind(part, only_order=only_order)) is not None:
            stream = next(filter(None, map(_stream_of, part.called)), None)
            yield OrderDraw(part.where, kind, stream)


def _kind(part: Expression, *, only_order: bool) -> Draw | None:
    if isinstance(part.node, ast.Set | ast.SetComp) or "builtins.set" in part.called:
        return Draw.SET
    if any(part.argument(None, name) for name in _SEEDED):
        return None
    drawing = [name for name in part.called if draws(name) and (puts_in_order(name) or not only_order)]
    if any(not _is_alike(part, name) for name in drawing):
        return Draw.RANDOM
    return Draw.FOLDER if part.called & FOLDERS or part.method in ("iterdir", "rglob") else None


def _is_alike(part: Expression, name: str) -> bool:
    """Whether a draw gives the same in every process: of a generator, or a stream, with an equal seed."""
    generator = next((it for it in GENERATORS if name.startswith(f"{it}.")), None)
    if generator is None:
        seeding = (it for it in part.program.every_call() if _stream_of(name) in map(SEEDS.get, it.called))
        return any(seed.only(Origin.ENVIRONMENT) for it in seeding if (seed := it.argument(0, "seed")))
    owner = part.owner
    made = [it for it in owner.made_of() if generator in it.called] if owner else []
    seeds = [it.argument(0, "seed") for it in made]
    return bool(seeds) and all(seed is not None and seed.only(Origin.ENVIRONMENT) for seed in seeds)


def _stream_of(name: str) -> str | None:
    """The global stream that a function draws from."""
    if not draws(name) or name.startswith(tuple(f"{it}." for it in GENERATORS)):
        return None
    return {"torch": "torch", "random": "python"}.get(name.partition(".")[0], "numpy")


def _whole(part: Expression) -> Expression | None:
    """What a rank takes its part of by its number: ``order[rank::n]``, ``order[rank * n : ...]``, ``parts[rank]``, the
    same by ``islice``, or a comprehension over every n-th element; None of what is no such part."""
    node = part.node
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
        return part.inner(node.value) if _is_rank(part.inner(node.slice)) else None
    if not any(Origin.RANK in part.inner(it).origins.kinds for it in _by_number(part)):
        return None
    if isinstance(node, ast.Subscript):
        return part.inner(node.value)
    return part.argument(0, "iterable") or part


def _is_rank(index: Expression) -> bool:
    """Whether an index is the number of a rank; one that holds a slice is itself cut out of something."""
    if Origin.RANK not in index.origins.kinds:
        return False
    return not any(isinstance(getattr(it.node, "slice", None), ast.Slice) for it in index.made_of())


def _by_number(part: Expression) -> list[ast.expr]:
    """What decides where in a sequence a part begins, or which of its elements are taken."""
    node = part.node
    if isinstance(node, ast.Subscript) and isinstance(bounds := node.slice, ast.Slice):
        return [bounds.lower] if bounds.lower and (bounds.upper or bounds.step) else []
    if isinstance(node, ast.Call) and "itertools.islice" in part.called:
        return node.args[1:2]
    if not isinstance(node, ast.ListComp | ast.GeneratorExp):
        return []
    first = node.generators[0]
    chosen = [test for test in first.ifs if any(isinstance(it, ast.Mod) for it in ast.walk(test))]
    ranged = isinstance(first.iter, ast.Call) and "builtins.range" in part.inner(first.iter).called
    return [*chosen, *(first.iter.args[:-1][:1] if isinstance(first.iter, ast.Call) and ranged else ())]


def shared_seed(recordings: Mapping[int, Recording], streams: Iterable[str], before: float) -> Seeded | None:
    """The last call that seeded one of these streams before this time, the same on every rank; the first's. Streams are
    ``torch``, ``numpy`` or ``python``, the likeliest first."""
    for stream in streams:
        seeds = [_last(recording, stream, before) for recording in recordings.values()]
        first = seeds[0]
        if first and first.at and all(seed is not None and seed.value == first.value for seed in seeds):
            return first
    return None


def _last(recording: Recording, stream: str, before: float) -> Seeded | None:
    seeds = reversed(recording.events(Seeded))
    return next((seed for seed in seeds if seed.stream == stream and seed.time <= before), None)


_MOST_LATER = 8
"""Batches by which one rank is behind another; ranks that begin far apart, and each read all, are further."""
_ENOUGH = 4
"""For how many times as many batches ranks have to be that far apart."""
_ONLY_SUMS = {"all_reduce", "reduce", "barrier"}
"""Collectives that give no rank a batch of another one."""


@dataclass(frozen=True)
class Lag:
    """One rank feeds what another one fed before."""

    ahead: int
    behind: int
    batches: int
    """How many forwards later."""
    shared: int
    """How many inputs were seen on both."""
    forward: Forward
    read: Where | None
    """The line that cuts the batch out of the data at a place that depends on the rank."""


def lag(recordings: Mapping[int, Recording]) -> Lag | None:
    """Two ranks of which one feeds the other's inputs a few batches later; None where they feed inputs of their own."""
    fed = {rank: _distinct(recording) for rank, recording in recordings.items()}
    places: dict[str | None, dict[int, int]] = {}
    for rank, row in fed.items():
        for place, forward in enumerate(row):
            places.setdefault(forward.input, {})[rank] = place
    for ahead, row in fed.items():
        for behind, later in places[row[0].input].items() if row else ():
            shared = min(len(row), len(fed[behind]) - later)
            if 0 < later <= min(_MOST_LATER, shared // _ENOUGH) and [
                forward.input for forward in row[:shared]
            ] == [forward.input for forward in fed[behind][later : later + shared]]:
                return Lag(ahead, behind, later, shared, row[0], _read(row[0], recordings[ahead].script))
    return None


def order_of_each_rank(recordings: Mapping[int, Recording]) -> tuple[OrderDraw, Where] | None:
    """The line by which each rank puts samples in an order of its own before it takes its part, and the backward of
    a loss that is made of it; None where none is seen."""
    lines = {
        backward.at: (backward.time, recording.script)
        for recording in recordings.values()
        for step in recording.steps
        for backward in step.backwards
        if backward.at
    }
    for at, (time, script) in lines.items():
        draw = draw_before_part(_losses(at, script))
        if draw is None or draw.stream is None:
            continue
        seed = shared_seed(recordings, [draw.stream], time)
        if seed is None or seed.value is None:
            return draw, at
    return None


def _distinct(recording: Recording) -> list[Forward]:
    """The training forwards from the first one on, until one was not seen or has an input for the second time."""
    row: dict[str, Forward] = {}
    for number, step in enumerate(recording.steps):
        if step.index != number or any(it.operation not in _ONLY_SUMS for it in step.collectives):
            break
        for forward in (it for it in step.forwards if it.grad):
            if forward.input is None or forward.input in row:
                return list(row.values())
            row[forward.input] = forward
    return list(row.values())


def _losses(at: Where, script: str) -> Iterator[Expression]:
    for call in Program.holding(at, script).calls_at(at):
        yield from filter(None, (call.owner, call.argument(0, "loss")))


def _read(forward: Forward, script: str) -> Where | None:
    at = forward.at
    for call in Program.holding(at, script).calls_at(at) if at else ():
        for part in (it for argument in call.arguments for it in argument.made_of()):
            bounds = part.node.slice if isinstance(part.node, ast.Subscript) else None
            begin = bounds.lower if isinstance(bounds, ast.Slice) else None
            if begin is not None and Origin.RANK in part.inner(begin).origins.kinds:
                return part.where
    return None
