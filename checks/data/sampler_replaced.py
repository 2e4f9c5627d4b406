from collections.abc import Iterator, Mapping

from ddpdoctor.check import Check
from ddpdoctor.model import Finding, Judgement, Passed, Skipped
from ddpdoctor.recorder.events.data import Loader, LoaderMade
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.instances import by_line, of_loader
from ddpdoctor.trace.recording import Recording

PLAIN = ("RandomSampler", "SequentialSampler", "DistributedSampler", "BatchSampler")
"""Samplers that frameworks replace by their equal for several ranks, which is what one wants of them."""


class SamplerReplaced(Check):
    """A framework replaced the DataLoader's sampler.

    What it finds:
        Loaders made with a sampler of their own, weighted, balanced or by length, from which another sampler draws
        in training, because a framework put a plain distributed one in its place. That a framework replaces a plain
        random or sequential sampler is what one wants of it.

    Why it matters:
        Weights and buckets are gone without a word: rare classes are as rare as in the data again, and results are
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

    def examine_run(self, trace: Trace) -> Judgement:
        trained = trace.training()
        lost = ((rank, loader) for rank, one in trained.items() for loader in _replaced(one))
        findings = [self._lost(loaders, trained) for loaders in by_line(lost)]
        if not findings and not any(
            drawn.training for recording in trained.values() for drawn in recording.passes
        ):
            return Skipped("no DataLoader was used to train")
        return findings or Passed("every training loader draws from the sampler that it was given")

    def _lost(self, loaders: Mapping[int, Loader], trained: Mapping[int, Recording]) -> Finding:
        rank, loader = next(iter(loaders.items()))
        given = _given(trained[rank], loader)
        draws = loader.sampler.name if loader.sampler else "another sampler"
        return self.warn(
            f"{draws} draws for {ranks_phrase(loaders)} in place of the {given} that was given",
            why="A framework replaced the sampler by one that divides samples among ranks and knows nothing "
            "of the weights, buckets or order of the one that was given.",
            fix="Trainer(use_distributed_sampler=False)    # Lightning; and divide inside the sampler",
            ranks=tuple(loaders),
            where=loader.at,
            about=of_loader(loader),
        )


def _replaced(recording: Recording) -> Iterator[Loader]:
    trained = {drawn.loader for drawn in recording.passes if drawn.training}
    for loader in recording.loaders:
        given = _given(recording, loader) if loader.index in trained else None
        if given and given not in PLAIN:
            yield loader


def _given(recording: Recording, loader: Loader) -> str | None:
    """The sampler given to an earlier loader over this dataset that was never iterated, where another draws."""
    drawn_from = {made for one in recording.loaders for made in (one.made, *one.holds)}
    unused = (
        earlier.sampler
        for earlier in recording.events(LoaderMade)
        if earlier.made < loader.made and earlier.made not in drawn_from and earlier.data == loader.data
    )
    return next(filter(None, unused), None)
