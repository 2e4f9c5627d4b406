from ddpdoctor.check import Check
from ddpdoctor.model import Finding, Judgement, Passed, Skipped
from ddpdoctor.text import plural
from ddpdoctor.trace import Trace
from ddpdoctor.trace.loading import Round, by_loader, evaluation_rounds


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

    def examine_run(self, trace: Trace) -> Judgement:
        rounds = [
            shared for shared in evaluation_rounds(trace.training_of_several()) if shared.loader.samples
        ]
        if not rounds:
            return Skipped("ranks do not evaluate over a DataLoader together")
        return [self._padded(shared, repeats) for shared, repeats in by_loader(rounds, _repeats)] or Passed(
            f"no sampler pads the {rounds[0].loader.samples} samples of {rounds[0].loader.dataset}"
        )

    def _padded(self, shared: Round, repeats: int) -> Finding:
        samples = shared.loader.samples or 0
        return self.info(
            f"{len(shared.ranks)} ranks evaluate {samples + repeats} samples of {shared.loader.dataset}, "
            f"which has {samples}",
            why=f"The sampler repeats {plural(repeats, 'sample')} to give every rank as many. A metric that is summed "
            f"over the ranks counts {'it' if repeats == 1 else 'them'} twice, {repeats / samples:.2%} of all.",
            fix="share = range(dist.get_rank(), len(dataset), dist.get_world_size())\n"
            "loader = DataLoader(Subset(dataset, share), batch_size)",
            **shared.fields(
                {
                    rank: f"{sampler.name}, total_size {sampler.total}"
                    for rank, sampler in shared.samplers.items()
                }
            ),
        )


def _repeats(shared: Round) -> int:
    """How many samples the sampler draws beyond those there are; 0 where none divides the samples."""
    totals = {sampler.total for sampler in shared.samplers.values()} if shared.divided else set()
    total = totals.pop() if len(totals) == 1 else None
    return max(0, (total or 0) - (shared.loader.samples or 0))
