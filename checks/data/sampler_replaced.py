from collections.abc import Iterator

from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.recorder.events.data import Loader, LoaderMade
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_line, of_loader, on_each_rank

PLAIN = ("RandomSampler", "SeedableRandomSampler", "SequentialSampler", "DistributedSampler", "BatchSampler")
"""Samplers that frameworks replace by their equal for several ranks, which is what one wants of them."""


class SamplerReplaced(Check):
    """A framework replaced the DataLoader's sampler.

    What it finds:
        Loaders made with a custom sampler, weighted, balanced or by length, from which another sampler draws in
        training, because a framework put a plain distributed one in its place. A framework that replaces a plain
        random or sequential sampler is right.

    Why it matters:
        Weights and buckets are lost without a warning: rare classes are as rare as in the data again, and results are
        not those of the script on one GPU.

    Example:
        loader = DataLoader(dataset, sampler=WeightedRandomSampler(weights, len(weights)))
        trainer.fit(model, loader)              # replaces the sampler by DistributedSampler

    Fix:
        Tell the framework to leave the sampler alone, and divide inside it:
            Trainer(use_distributed_sampler=False)          # Lightning
            DistributedSampler over the indices that the weighted sampler draws from a common seed
    """

    code = "DD110"
    title = "DataLoaders use the samplers that the script gave them"

    def examine_run(self, trace: Trace) -> Findings:
        trained = trace.training()
        self.require(any(it.training_passes for it in trained.values()), "no DataLoader was used to train")
        replaced = by_line(on_each_rank(trained, _replaced))
        for loaders in replaced:
            rank, loader = next(iter(loaders.items()))
            given = _given(trained[rank], loader)
            draws = loader.sampler.name if loader.sampler else "another sampler"
            yield self.warn(
                f"{ranks_phrase(loaders)} train with {draws} instead of the {given} that the script made",
                ranks=tuple(loaders),
                where=loader.at,
                about=of_loader(loader),
            )
        yield Passed("every training loader uses the sampler that it was given")


def _replaced(recording: Recording) -> Iterator[Loader]:
    trained = {pass_.loader for pass_ in recording.training_passes}
    for loader in recording.loaders:
        given = _given(recording, loader) if loader.index in trained else None
        if given and given not in PLAIN:
            yield loader


def _given(recording: Recording, loader: Loader) -> str | None:
    """The sampler given to an earlier loader over this dataset that was never iterated, where another draws."""
    drawn_from = {made for iterated in recording.loaders for made in (iterated.made, *iterated.holds)}
    unused = (
        earlier.sampler
        for earlier in recording.events(LoaderMade)
        if earlier.made < loader.made and earlier.made not in drawn_from and earlier.data == loader.data
    )
    return next(filter(None, unused), None)
