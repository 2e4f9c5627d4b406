from collections.abc import Mapping
from itertools import takewhile

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed, Skipped
from ddpdoctor.frameworks import by_framework
from ddpdoctor.recorder.events.training import DrawnBetween, Forward
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, TrainingStep, shown_at
from ddpdoctor.trace.dataset_draws import generator_seed, shared_seed
from ddpdoctor.trace.joint_training import training_steps
from ddpdoctor.trace.loading import SharedPass, by_loader, groups, training_rounds

ENOUGH_STEPS = 3
"""Steps with equal inputs on every rank from which it is no accident."""
ENOUGH_AT_THE_END = 6
"""The same, of the last steps, after others in which ranks had inputs of their own."""


class DataNotSharded(Check):
    """Every rank trains on the same data.

    What it finds:
        Training passes in which every rank draws the same samples in the same order, or each draws the whole
        dataset in a different order; and loops without a DataLoader in which every rank feeds identical inputs in
        every step. Ranks that take different parts of a common batch, a single batch that is overfitted on
        purpose, random samples drawn with replacement from different seeds, samples that a sampler gives to
        several ranks to be augmented by each, and ranks that share data because they hold parts of one model are
        left alone.

    Why it matters:
        An epoch takes as many steps as on one rank, so adding ranks gains nothing: each sample is computed once on
        every rank, and the average of equal gradients is what one rank alone would have had. Nothing fails, and the
        loss looks sound.

    Example:
        The loader of a script for one GPU, started by torchrun:
            loader = DataLoader(dataset, batch_size=32, shuffle=True)

    Fix:
        Divide the dataset among the ranks, and give the sampler the epoch:
            sampler = DistributedSampler(dataset)
            loader = DataLoader(dataset, batch_size=32, sampler=sampler)
            for epoch in range(epochs):
                sampler.set_epoch(epoch)
        Where batches are made without a DataLoader, draw them from a different seed on each rank, or from its part:
            torch.manual_seed(seed + dist.get_rank())
            samples = samples[dist.get_rank() :: dist.get_world_size()]
    """

    code = "DD101"
    title = "the data is divided among the ranks"
    fix_with = by_framework(
        lightning="Trainer(use_distributed_sampler=True)    # the default; or your own DistributedSampler",
        fabric="loader = fabric.setup_dataloaders(loader)",
        transformers="leave get_train_dataloader to the Trainer, or end your own with\nreturn "
        "self.accelerator.prepare(loader)",
        accelerate="model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
        ignite="loader = idist.auto_dataloader(dataset, batch_size=batch_size, shuffle=True)",
        ray="loader = ray.train.torch.prepare_data_loader(loader)",
    )
    explained_by = ("DD105", "DD227")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        rounds = list(training_rounds(recordings))
        undivided = [self._draws(shared, order) for shared, order in by_loader(rounds, _order)]
        if undivided:
            return undivided
        if any(recording.training_passes for recording in recordings.values()):
            numbered = [shared for shared in rounds if shared.indices is not None]
            self.require(numbered, "the training data is a stream, or ranks loop over it in different places")
            return Passed(f"each rank draws its own part of {numbered[0].loader.samples} samples in a pass")
        for group in groups(recordings):
            members = {rank: recordings[rank] for rank in group}
            rows = [row for _, row in training_steps(members)]
            pairs = [pair for row in rows if (pair := _inputs(row)) is not None]
            if len(pairs) < ENOUGH_STEPS:
                continue
            alike = list(takewhile(lambda pair: pair[0], reversed(pairs)))
            several = len({forward.input for _, forward in alike}) > 1
            if several and (len(alike) == len(pairs) or len(alike) >= ENOUGH_AT_THE_END):
                first = alike[-1][1]
                seed = shared_seed(members, _drawn_from(members), first.time)
                script = next(iter(members.values())).script
                seeded = seed.at if seed else generator_seed(first.at, script) if first.at else None
                steps = len(alike)
                since = len(pairs) - len(alike)
                when = f", after {since} with different inputs" if since else ""
                return self.fail(
                    f"{ranks_phrase(group)} feed identical inputs to the model in each of {steps} training steps{when}",
                    where=seeded or first.at,
                    evidence=(Evidence(f"first input {first.input}", group), *shown_at("fed", first.at)),
                )
            return Passed(f"{ranks_phrase(group)} feed different inputs")
        return Skipped("no DataLoader was used, and too few inputs were recorded")

    def _draws(self, shared: SharedPass, order: str) -> Finding:
        name = next((sampler.name for sampler in shared.samplers.values()), "none")
        indices = shared.indices or {}
        samples = len(set(indices[shared.ranks[0]]))
        return self.fail(
            f"{ranks_phrase(shared.ranks)} all train on the same {plural(samples, 'sample')} of "
            f"{shared.loader.dataset}, in {order}",
            **shared.fields(indices, lambda it: f"sampler {name}, draws {', '.join(map(str, it[:6]))}, ..."),
        )


def _drawn_from(recordings: Mapping[int, Recording]) -> list[str]:
    """The streams that every rank draws from between its steps; what is not drawn no seed makes equal."""
    drawn = [
        {stream for event in recording.events(DrawnBetween) for stream in event.streams}
        for recording in recordings.values()
    ]
    common = {"torch" if stream == "cuda" else stream for stream in set.intersection(*drawn)}
    return [stream for stream in ("torch", "numpy", "python") if stream in common]


def _order(shared: SharedPass) -> str | None:
    """In which order every rank draws the same samples; None where ranks draw samples of their own."""
    if (
        shared.indices is None
        or shared.one_dataset is False
        or _is_one_batch(shared)
        or shared.takes_own_parts
        or (shared.loader.ignores_index and not shared.same_batches)
    ):
        return None
    first, *others = shared.indices.values()
    if all(list(shard) == list(first) for shard in others):
        repeated = shared.same_batches or (shared.one_dataset and not _repeats(shared))
        return "the same order" if repeated else None
    if shared.one_dataset and all(_is_whole(shared, rank) for rank in shared.ranks):
        return "different orders"
    return None


def _repeats(shared: SharedPass) -> bool:
    """Whether samplers that know their ranks give each sample to all of them on purpose, each time augmented anew."""
    ranks = {sampler.rank for sampler in shared.samplers.values()}
    whole = any(_is_whole(shared, rank) for rank in shared.ranks)
    return shared.divided and len(ranks) == len(shared.ranks) and not whole


def _is_one_batch(shared: SharedPass) -> bool:
    """Whether there is a single batch, as where one overfits it on purpose."""
    return any(
        (pass_.batches if pass_.batches is not None else pass_.drawn) < 2
        or (pass_.drawn < 2 and pass_.ended == "left")
        for pass_ in shared.passes.values()
    )


def _is_whole(shared: SharedPass, rank: int) -> bool:
    """Whether this rank draws every sample that any rank draws once, but for a last batch that is dropped."""
    pass_, samples = list((shared.indices or {})[rank]), shared.loaders[rank].samples or 0
    dropped = shared.loaders[rank].batch_size or 1
    anybodys = {index for shard in (shared.indices or {}).values() for index in shard}
    return len(set(pass_)) == len(pass_) > samples - dropped and len(anybodys) <= samples


def _inputs(row: Mapping[int, TrainingStep]) -> tuple[bool, Forward] | None:
    """Whether all ranks fed the same in this step, and a forward that tells where; None where it was not seen."""
    fed = [[forward for forward in step.forwards if forward.grad] for step in row.values()]
    inputs = [tuple(forward.input for forward in forwards) for forwards in fed]
    if any(not row or None in row for row in inputs):
        return None
    return len(set(inputs)) == 1, fed[0][0]
