"""Who saw which data, as figures: what ranks draw of a dataset, and in which order."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from ddpdoctor.check import NotMeasured
from ddpdoctor.figures import Figure, Row, Section, Strips, Tone, cells, side_by_side
from ddpdoctor.text import plural
from ddpdoctor.trace import Trace
from ddpdoctor.trace.instances import grouped
from ddpdoctor.trace.loading import SharedPass, evaluation_rounds, training_rounds

MOST_SAMPLES = 4_000_000
"""Numbers of samples that are counted; more take seconds."""
MOST_LOADERS, MOST_PASSES, MOST_PARTS = 4, 6, 60
_COVERAGE = ((Tone.GOOD, "drawn once"), (Tone.BAD, "drawn more than once"), (Tone.OTHER, "not drawn"))


def data_section(trace: Trace) -> Section | None:
    """What the ranks of a run drew; None where that was not seen."""
    try:
        recordings = trace.training_of_several()
    except NotMeasured:
        return None
    rounds = [*training_rounds(recordings), *evaluation_rounds(recordings)]
    figures: list[Figure] = []
    # Several loaders may be made on one line, for training and for evaluation.
    alike = grouped(rounds, lambda shared: (shared.about, _is_training(shared), shared.loader.samples))
    for of_loader in alike[:MOST_LOADERS]:
        figures += _figures(of_loader)
    return Section("Who saw which data", figures=tuple(figures)) if figures else None


def _figures(rounds: Sequence[SharedPass]) -> Iterator[Figure]:
    counted, left = [], MOST_SAMPLES
    for shared in rounds[:MOST_PASSES]:
        left -= sum(map(len, (shared.indices or {}).values()))
        if shared.indices is not None and left > 0:
            counted.append(shared)
    samples = rounds[0].loader.samples
    if counted and samples:
        # Each rank may have a dataset of its own, a part of what all draw from.
        drawn = {it for shared in counted for of in (shared.indices or {}).values() for it in of}
        yield _coverage(counted, max(samples, len(drawn)))
    yield from _orders(counted)


def _is_training(shared: SharedPass) -> bool:
    return any(pass_.training for pass_ in shared.passes.values())


def _name(shared: SharedPass) -> str:
    at = shared.loader.at
    kind = "training" if _is_training(shared) else "evaluation"
    return f"{kind} on {shared.loader.dataset}" + (f", {PurePath(at.file).name}:{at.line}" if at else "")


def _coverage(rounds: Sequence[SharedPass], samples: int) -> Strips:
    """Of each pass: how many samples are drawn by one rank, by several, and by none."""
    rows = []
    numbers = [shared.number for shared in rounds]
    if len(set(numbers)) < len(numbers):  # a loader is made for each
        numbers = list(range(len(rounds)))
    for number, shared, before in zip(numbers, rounds, [None, *rounds], strict=False):
        drawn = Counter(index for indices in (shared.indices or {}).values() for index in indices)
        once = sum(count == 1 for count in drawn.values())
        parts = (once, len(drawn) - once, max(0, samples - len(drawn)))
        counts = zip(parts, _COVERAGE, strict=True)
        spans = ((count, tone, f"{plural(count, 'sample')} {text}") for count, (tone, text) in counts)
        rows.append(Row(f"pass {number}", side_by_side(*spans), _in_words(shared, before, parts)))
    return Strips(
        f"Samples drawn in {_name(rounds[0])}",
        tuple(rows),
        end=float(samples),
        unit="samples",
        legend=_COVERAGE,
        note=_even(rounds[0]),
    )


def _orders(rounds: Sequence[SharedPass]) -> Iterator[Strips]:
    """The order of a rank's samples in each pass, where a sampler that shuffles repeats it."""
    if not rounds or not _is_training(rounds[0]):
        return
    rank = rounds[0].ranks[0]
    orders = [list((shared.indices or {}).get(rank, ())) for shared in rounds]
    samplers = [it.passes[rank].sampler or it.loader.sampler for it in rounds if rank in it.passes]
    if not any(sampler and sampler.shuffle for sampler in samplers):
        return
    again = [orders.count(order) > 1 and len(set(order)) > 1 for order in orders]
    if any(again):
        highest = max(max(order, default=0) for order in orders) or 1
        length = max(map(len, orders))

        def row(number: int) -> Row:
            tone = Tone.BAD if again[number] else Tone.GOOD
            spans = cells(
                orders[number][:MOST_PARTS],
                lambda index: (tone, f"sample {index}", 0.15 + 0.85 * index / highest),
            )
            return Row(f"pass {number}", spans, "the same order again" if again[number] else "")

        yield Strips(
            f"Order of the samples of rank {rank} in {_name(rounds[0])}",
            tuple(map(row, range(len(orders)))),
            end=float(min(length, MOST_PARTS)),
            unit="samples",
            note="The darker, the higher is a sample's index. Passes that look alike have the same order.",
        )


def _in_words(shared: SharedPass, before: SharedPass | None, parts: Sequence[int]) -> str:
    """What a pass lacks, and whether each rank draws its samples in the order of the pass before."""
    words = [f"{count} {text}" for count, (_, text) in zip(parts[1:], _COVERAGE[1:], strict=True) if count]
    if before is not None and before.indices and shared.indices:
        same = [rank for rank, of in shared.indices.items() if list(of) == list(before.indices.get(rank, ()))]
        if same:
            every = len(same) == len(shared.indices)
            words.append("same order as before" + ("" if every else " on some ranks"))
    return ", ".join(words)


def _even(shared: SharedPass) -> str:
    batches = {pass_.batches for pass_ in shared.passes.values()}
    count = batches.pop() if len(batches) == 1 else None  # known of all, and the same
    return "" if count is None else f"Every rank has {plural(count, 'batch')} in a pass."
