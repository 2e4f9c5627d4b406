from ddpdoctor.check import Check, Finding, Findings, Passed
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.loading import SharedPass, by_loader, training_rounds


class TooFewSamples(Check):
    """The dataset is too small for the number of ranks: a pass has no batch, or repeats samples to have one.

    What it finds:
        Training passes in which no rank has a batch, because its part of the data is smaller than a batch and
        drop_last drops it, or is empty; and samplers that give each sample to several ranks, because there are fewer
        samples than ranks. Ranks with batches next to ranks without any are another problem: uneven batches.

    Why it matters:
        The part of each rank shrinks as ranks are added. Without a batch the loop body never runs: the script saves
        weights that were never trained, with no error. With repeated samples, ranks compute the same as others.

    Example:
        64 ranks, 256 samples, 4 for each rank and none in a batch of 8:
            loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset), drop_last=True)

    Fix:
        Use more data or fewer ranks. Divide one batch size of the whole job by the ranks, and stop where a pass is
        empty:
            batch_size = max(1, args.batch_size // dist.get_world_size())
            if len(loader) == 0:
                raise SystemExit(f"{len(dataset)} samples are too few for {dist.get_world_size()} ranks")
    """

    code = "DD112"
    title = "the dataset has samples and a batch for every rank"
    explained_by = ("DD105", "DD106", "DD227")

    def examine_run(self, trace: Trace) -> Findings:
        rounds = self.require(list(training_rounds(trace.recordings())), "no DataLoader was used to train")
        for shared, _ in by_loader(rounds, _is_empty):
            yield self._empty(shared)
        for shared, samples in by_loader(rounds, _fewer_than_ranks):
            members = plural(len(shared.members), "rank")
            yield self.warn(
                f"{shared.loader.dataset} has {plural(samples, 'sample')} for {members}",
                **shared.fields(shared.samplers, lambda it: f"{it.name}, total_size {it.total}"),
            )
        yield Passed(f"{ranks_phrase(rounds[0].ranks)} have batches to train on")

    def _empty(self, shared: SharedPass) -> Finding:
        loader = shared.loader
        of_size = f" of {loader.batch_size}, and drop_last" if loader.drop_last else ""
        return self.fail(
            f"a training pass over {loader.dataset} has no batch on {ranks_phrase(shared.ranks)}",
            **shared.fields(
                {rank: loader.samples for rank, loader in shared.loaders.items()},
                lambda samples: f"{plural(samples or 0, 'sample')} in its dataset, 0 batches{of_size}",
            ),
        )


def _is_empty(shared: SharedPass) -> bool:
    return all(pass_.batches == 0 and pass_.drawn == 0 for pass_ in shared.passes.values())


def _fewer_than_ranks(shared: SharedPass) -> int | None:
    """The samples of a dataset that a sampler divides among more ranks than that; None where there are enough."""
    samples = shared.loader.samples or 0
    drawn = any(pass_.drawn for pass_ in shared.passes.values())
    replicas = {sampler.replicas for sampler in shared.samplers.values()}
    divided = shared.divided and replicas == {len(shared.members)} and drawn
    return samples if divided and 0 < samples < len(shared.members) else None
