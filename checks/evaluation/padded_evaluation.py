from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.frameworks import by_framework
from ddpdoctor.recorder.events.training import GatheredForMetrics
from ddpdoctor.text import plural
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.loading import SharedPass, by_loader, evaluation_rounds


class PaddedEvaluation(Check):
    """Samples are evaluated twice to pad the shards to equal length.

    What it finds:
        Evaluation passes whose sampler repeats samples so that every rank has as many, with the number of repeats.
        This is information only: a script may leave the repeats out of its metric, which is not seen here.

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
        rounds = [
            shared for shared in evaluation_rounds(trace.training_of_several()) if shared.loader.samples
        ]
        self.require(rounds, "ranks do not evaluate over a DataLoader together")
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
