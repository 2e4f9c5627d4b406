import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ddpdoctor.check import Check, Evidence, Finding, Findings, Passed
from ddpdoctor.frameworks import by_framework
from ddpdoctor.recorder.events.files import Printed
from ddpdoctor.recorder.events.training import Collective, GatheredForMetrics
from ddpdoctor.text import plural, quote, shorten
from ddpdoctor.trace import Recording, Trace, grouped
from ddpdoctor.trace.loading import SharedPass, by_loader, evaluation_rounds
from ddpdoctor.trace.summed import Total, summed_over_ranks

_T = TypeVar("_T", Collective, Printed)
_NUMBER = re.compile(r"\d+\.(\d+)")
_PRECISE = 2e-3
"""How far a printed number may be from what it is rounded from, relative to it; others match by chance."""
_ENOUGH = 3
"""Different sums that ranks have in common; fewer may be equal by chance where each evaluates its own part."""


@dataclass(frozen=True)
class Summed:
    """A sum over the whole set, which every rank has given to an all_reduce, and whose total is printed as if it were
    of one set."""

    count: Total
    own: float
    printed: Printed
    is_of_all: bool
    """Whether it is no sum over a part of the samples for sure."""


class PaddedEvaluation(Check):
    """Samples are evaluated twice to pad the shards to equal length.

    What it finds:
        Evaluation passes whose sampler repeats samples so that every rank has as many, with the number of repeats.
        This is information only: a script may leave the repeats out of its metric, which is not seen here. And
        evaluations of the whole set on every rank, whose sums are added up over the ranks and divided by the length
        of one set: what is printed is as many times too large as there are ranks.

    Why it matters:
        Each repeat counts twice in a sum over all ranks. At most as many samples as there are ranks, less one, so
        the error is small for a large set and large for a small one, and the metric depends on the number of ranks.

    Example:
        13 samples for 2 ranks are evaluated as 14:
            DataLoader(held_out, sampler=DistributedSampler(held_out, shuffle=False))

    Fix:
        Divide without padding, and evaluate the bare model, as ranks may have different numbers of batches:
            share = range(dist.get_rank(), len(held_out), dist.get_world_size())
            loader = DataLoader(Subset(held_out, share), batch_size)
    """

    code = "DD501"
    title = "every sample is evaluated once"
    fix_with = by_framework(
        accelerate="predictions, targets = accelerator.gather_for_metrics((predictions, targets))",
        lightning="Trainer(use_distributed_sampler=False, devices=1).test(model, loader)    # on one rank, "
        "for figures to publish",
    )

    def examine_run(self, trace: Trace) -> Findings:
        rounds = [it for it in evaluation_rounds(trace.training_of_several()) if it.loader.samples]
        self.require(rounds, "ranks do not evaluate over a DataLoader together")
        for of_loader in grouped(rounds, lambda shared: shared.about):
            seen = [(shared, found) for shared in of_loader for found in _summed(shared)]
            given = {found.own for _, found in seen}
            if len(given) >= _ENOUGH or any(found.is_of_all for _, found in seen):
                yield self._counted_by_all(*seen[0])
        for shared, repeats in by_loader(rounds, _repeats):
            samples = shared.loader.samples or 0
            yield self.info(
                f"{len(shared.members)} ranks evaluate {samples + repeats} samples of {shared.loader.dataset}, "
                f"which has {samples}",
                why=f"The sampler repeats {plural(repeats, 'sample')} to give every rank the same "
                "number. A metric that is summed over the ranks counts "
                f"{'it' if repeats == 1 else 'them'} twice, {repeats / samples:.2%} of all.",
                **shared.fields(
                    {rank: sampler for rank, sampler in shared.samplers.items() if sampler.total is not None},
                    lambda sampler: f"{sampler.name}, total_size {sampler.total}",
                ),
            )
        yield Passed(f"no sampler pads the {rounds[0].loader.samples} samples of {rounds[0].loader.dataset}")

    def _counted_by_all(self, shared: SharedPass, found: Summed) -> Finding:
        size, samples, call = len(shared.passes), shared.loader.samples, found.count.call
        return self.fail(
            f"{size} ranks evaluate all {samples} samples of {shared.loader.dataset} each, and the sum over the "
            f"ranks is divided by {samples}: {size} times too large",
            why="Every rank goes through the whole set, so that each sample is in the sum once for every rank. The "
            "length of the dataset counts it once.",
            fix="DataLoader(held_out, sampler=DistributedSampler(held_out, shuffle=False))    # a part on each rank\n"
            "# or delete the all_reduce: every rank has the whole sum",
            ranks=shared.ranks,
            where=call.at,
            evidence=(
                Evidence(f"{found.own:.6g} given, {found.count.total:.6g} got", shared.ranks),
                Evidence(f"printed: {quote(shorten(found.printed.text))}", where=found.printed.at),
            ),
            about=shared.about,
        )


def _summed(shared: SharedPass) -> Iterator[Summed]:
    """What all ranks gave alike after a pass over the whole set, and is printed over its length."""
    samples = shared.loader.samples or 0
    drawn = {frozenset(indices) for indices in (shared.indices or {}).values()}
    if len(shared.passes) < 2 or shared.one_dataset is False or drawn != {frozenset(range(samples))}:
        return
    windows = {rank: shared.window(rank) for rank in shared.passes}
    calls = {rank: _within(windows[rank], one.collectives) for rank, one in shared.recordings.items()}
    printed = [
        line
        for rank, one in shared.recordings.items()
        for line in _within(windows[rank], one.events(Printed))
    ]
    for count in summed_over_ranks(calls):
        own, mean = count.given[shared.ranks[0]], count.total / samples
        line = next((it for it in printed if it.time > count.call.time and _tells(it.text, mean)), None)
        if line is not None and len(set(count.given.values())) == 1:
            yield Summed(count, own, line, mean > 1 or not own.is_integer())


def _within(window: tuple[float, float], events: Iterable[_T]) -> list[_T]:
    return [event for event in events if window[0] <= event.time < window[1]]


def _tells(text: str, number: float) -> bool:
    """Whether a line has this number, or it in percent, with enough digits."""
    printed = ((float(match[0]), 0.51 * 10.0 ** -len(match[1])) for match in _NUMBER.finditer(text))
    return any(
        abs(value - wanted) <= max(rounded, 1e-6 * wanted) and rounded <= _PRECISE * wanted
        for value, rounded in printed
        for wanted in (number, 100 * number)
    )


def _repeats(shared: SharedPass) -> int:
    """How many samples are drawn again to give every rank as many; 0 where none are, or the script leaves them out."""
    if any(_leaves_repeats_out(shared.recordings[rank]) for rank in shared.ranks):
        return 0
    samples = shared.loader.samples or 0
    totals = {sampler.total for sampler in shared.samplers.values()} if shared.divided else set()
    total = totals.pop() if len(totals) == 1 else None
    total = _drawn_by_all(shared, samples) if total is None else total
    return max(0, (total or 0) - samples)


def _leaves_repeats_out(recording: Recording) -> bool:
    """Whether accelerate gathers batches inside a loop, at whatever line; what it gathers after one may be any number.

    It draws a batch ahead, so that the pass over a single batch has ended when that is gathered.
    """
    return any(
        pass_.covers(gathered.time) or (pass_.drawn <= 1 and pass_.begin <= gathered.time)
        for gathered in recording.events(GatheredForMetrics)
        for pass_ in recording.passes
    )


def _drawn_by_all(shared: SharedPass, samples: int) -> int | None:
    """How many samples the ranks draw together, of a dataset that they divide among them; None where they do not."""
    shards = list((shared.indices or {}).values())
    total, distinct = sum(map(len, shards)), len(set().union(*shards))
    a_batch_each = len(shards) * (shared.loader.batch_size or 1)
    return total if distinct == samples <= total <= samples + a_batch_each and len(shards) > 1 else None
