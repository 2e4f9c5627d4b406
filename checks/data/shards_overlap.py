from collections.abc import Hashable, Iterable, Mapping

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed
from ddpdoctor.shards import Overlap, overlap, shared_by_chance
from ddpdoctor.text import listing, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, shown_at
from ddpdoctor.trace.dataset_draws import OrderDraw, draw_before_cut, lag, order_of_each_rank, shared_seed
from ddpdoctor.trace.loading import SharedPass, by_loader, groups, training_rounds

SHOWN = 8
_EPOCHS_DIFFER = "their samplers are in different epochs"


class ShardsOverlap(Check):
    """Shards overlap: ranks train on the same samples, and never on others.

    What it finds:
        Samples that several ranks draw in one pass, beyond the few that pad the shards to one length, or samples that
        no rank draws: the samplers' seeds differ between ranks, or each rank takes its part from a different order.
        In a training run, the whole pass is compared, also where it was cut short. Where each rank's dataset holds
        only its part, the first 64 samples of each rank are compared by their content, if the script cuts the parts
        out of what it shuffles without a common seed. Without a DataLoader: a rank that trains on another's batches a
        few batches later, and parts of an order that each rank shuffles by itself. Samples drawn with replacement,
        samplers that repeat every sample on purpose, and datasets that hold samples several times are left alone.

    Why it matters:
        DistributedSampler divides one order among the ranks. Ranks that shuffle differently divide different
        orders: with two ranks a quarter of the samples is seen twice in an epoch and a quarter not at all.
        Nothing fails.

    Example:
        A different seed on each rank, where the sampler needs the same one on all:
            DistributedSampler(dataset, seed=args.seed + rank)
        A list of files in whatever order the filesystem gives it, different on each host:
            files = os.listdir(folder)
        A part of a list that each rank shuffles by itself:
            random.shuffle(files)
            dataset = Images(files[rank::world_size])

    Fix:
        Give all samplers the same seed, and put the dataset in the same order everywhere:
            DistributedSampler(dataset, seed=args.seed)
            files = sorted(os.listdir(folder))
            random.Random(0).shuffle(files)
            order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch))
            sampler.set_epoch(epoch)        # on every rank
    """

    code = "DD104"
    title = "ranks draw different samples"
    explained_by = ("DD101", "DD105", "DD107", "DD111")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        rounds = [shared for shared in training_rounds(recordings) if shared.indices is not None]
        if not any(recording.training_passes for recording in recordings.values()):
            findings = [self._of_group({rank: recordings[rank] for rank in it}) for it in groups(recordings)]
            return [*filter(None, findings)] or Passed("no batches of one rank were seen on another one")
        self.require(rounds, "no DataLoader whose samples have numbers was used to train")
        drawn = sum(len(shard) for shard in (rounds[0].indices or {}).values())
        return [finding for _, finding in by_loader(rounds, self._shared)] or Passed(
            f"{ranks_phrase(rounds[0].ranks)} draw {drawn} samples in a pass over "
            f"{rounds[0].loader.dataset}, none of them shared beyond padding"
        )

    def _shared(self, shared: SharedPass) -> Finding | None:
        """What ranks share of the samples of one pass, by their numbers or by their content."""
        overlap = _overlap_of(shared)
        equal = set() if overlap else _equal_samples(shared)
        draw = _draw(shared) if overlap or equal else None
        if equal and draw:
            return None if _is_seeded_alike(shared, draw) else self._share_content(shared, equal, draw)
        return self._share(shared, overlap, draw) if overlap and (draw or not _is_random(shared)) else None

    def _share(self, shared: SharedPass, overlap: Overlap, draw: OrderDraw | None) -> Finding:
        indices = shared.indices or {}
        drawn = len({index for shard in indices.values() for index in shard})
        cause = "each rank takes its part from a different order" if draw else _cause(shared)
        return self.fail(
            f"{ranks_phrase(shared.ranks)} share {len(overlap.shared)} of the {drawn} samples they draw in a "
            f"pass{_never_drawn(shared, overlap)}",
            why=f"Ranks divide one order of the dataset by taking every n-th sample of it. Here {cause}, so "
            "some samples are trained on twice in an epoch, and others not at all.",
            explained_by=("DD103",) if cause == _EPOCHS_DIFFER else (),
            **shared.fields(
                {rank: f"{_sampler(shared, rank)}draws {_some(shard)}" for rank, shard in indices.items()},
                where=shared.sampler_at,
                cause=draw.where if draw else None,
            ),
        )

    def _share_content(self, shared: SharedPass, equal: set[Hashable], draw: OrderDraw) -> Finding:
        drawn = {rank: pass_.samples for rank, pass_ in shared.passes.items()}
        evidence = {
            rank: f"{sum(sample in equal for sample in samples)} of its first {len(samples)} samples are on "
            "another rank, too"
            for rank, samples in drawn.items()
        }
        return self.fail(
            f"{ranks_phrase(shared.ranks)} share {len(equal)} of the {len(set().union(*drawn.values()))} samples of "
            f"{shared.loader.dataset} they draw first",
            **shared.fields(evidence, cause=draw.where),
        )

    def _of_group(self, members: Mapping[int, Recording]) -> Finding | None:
        """What ranks share that cut their batches out of the data by hand."""
        if lagging := lag(members):
            later = plural(lagging.batches, "batch")
            return self.fail(
                f"rank {lagging.behind} trains on the batches of rank {lagging.ahead}, {later} later",
                why="The ranks begin at different places of the data and then go on by too little, into what "
                "another rank has read. So each batch is trained on by several ranks.",
                fix="place += batch * dist.get_world_size()    # past the batches of all ranks",
                ranks=tuple(members),
                where=lagging.read or lagging.forward.at,
                evidence=(
                    Evidence(f"{lagging.shared} batches in a row, {later} later", (lagging.behind,)),
                    *shown_at("fed", lagging.forward.at),
                ),
            )
        found = order_of_each_rank(members)
        if found is None:
            return None
        draw, trained = found
        return self.fail(
            f"{ranks_phrase(members)} each take their part of a random order of their own",
            ranks=tuple(members),
            where=draw.where,
            evidence=(f"no seed of {draw.stream} that all ranks share", *shown_at("trained", trained)),
        )


def _never_drawn(shared: SharedPass, overlap: Overlap) -> str:
    if overlap.never is None:
        return f" over {shared.loader.dataset}"
    samples = plural(overlap.never, "sample")
    return f", and {samples} of {shared.loader.dataset} {'is' if overlap.never == 1 else 'are'} never drawn"


def _cause(shared: SharedPass) -> str:
    """Why ranks divide different orders."""
    if len({sampler.seed for sampler in shared.samplers.values()}) > 1:
        return "their samplers have different seeds"
    apart = len({sampler.epoch for sampler in shared.samplers.values()}) > 1
    return _EPOCHS_DIFFER if apart else "each rank divides a different order"


def _some(indices: Iterable[int]) -> str:
    return listing([str(index) for index in indices], SHOWN)


def _overlap_of(shared: SharedPass) -> Overlap | None:
    """The overlap of the shards of one pass, where there is one and nothing else explains it."""
    if shared.indices is None or shared.one_dataset is False:
        return None
    if _is_repeated(shared) or shared.takes_own_parts:
        return None
    lengths = {loader.samples or 0 for loader in shared.loaders.values()}
    if shared.divided:
        return overlap(shared.indices, lengths.pop(), len(shared.members)) if len(lengths) == 1 else None
    # Where each rank was given a part, only the highest number tells how long the whole is.
    samples = 1 + max(max(shard, default=-1) for shard in shared.indices.values())
    return overlap(shared.indices, samples, len(shared.members))


def _equal_samples(shared: SharedPass) -> set[Hashable]:
    """The samples that several ranks draw first, where each rank's dataset is a part that it chose by chance."""
    samples = {rank: [*filter(None, pass_.samples)] for rank, pass_ in shared.passes.items()}
    if shared.divided or shared.one_dataset or _is_repeated(shared) or shared.takes_own_parts:
        return set()
    if any(loader.ignores_index or not loader.samples for loader in shared.loaders.values()):
        return set()
    if any(len(samples[rank]) < len(pass_.samples) for rank, pass_ in shared.passes.items()):
        return set()
    lengths = {rank: loader.samples or 0 for rank, loader in shared.loaders.items()}
    return shared_by_chance(samples, lengths, len(shared.members))


def _is_repeated(shared: SharedPass) -> bool:
    """Whether samples are drawn with replacement."""
    return any(sampler.replacement for sampler in shared.samplers.values())


def _is_random(shared: SharedPass) -> bool:
    """Whether samples are drawn at random from what each rank has, which may be on purpose what others have."""
    return any(sampler.name == "RandomSampler" for sampler in shared.samplers.values())


def _draw(shared: SharedPass) -> OrderDraw | None:
    """The line that puts samples in another order on each rank, before each cuts its part out of them."""
    if shared.divided:
        return None
    return draw_before_cut(shared.at, next(iter(shared.recordings.values())).script)


def _is_seeded_alike(shared: SharedPass, draw: OrderDraw) -> bool:
    """Whether every rank seeded the stream alike that the order is drawn from."""
    begin = max(pass_.begin for pass_ in shared.passes.values())
    seed = shared_seed(shared.recordings, filter(None, [draw.stream]), begin)
    return seed is not None and seed.value is not None


def _sampler(shared: SharedPass, rank: int) -> str:
    sampler = shared.samplers.get(rank)
    if sampler is None:
        return ""
    return f"{sampler.name}, " + ("" if sampler.seed is None else f"seed {sampler.seed}, ")
