from collections.abc import Hashable, Iterable, Mapping

from ddpdoctor.check import Check, Finding, Judgement, Passed, Skipped, Where
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace, by_value
from ddpdoctor.trace.dataset_draws import dataset_draw
from ddpdoctor.trace.loading import SharedPass, by_loader, evaluation_rounds, training_rounds


class DatasetDiffers(Check):
    """Datasets that are divided among ranks differ between them.

    What it finds:
        Samplers that divide one dataset among ranks, over datasets that differ between ranks in length, in order
        or in content: made of random numbers without a common seed, split or shuffled before in another way, or
        listed from a folder in whatever order the filesystem gives; or parts that each rank has taken of one
        dataset before, so that it is divided twice. Ranks or nodes that each have their own data
        and no sampler that divides it are left alone.

    Why it matters:
        The sampler gives each rank different indices, and relies on an index being the same sample everywhere.
        Where it is not, samples are trained on twice in an epoch or never, what one rank holds out another trains
        on, and different lengths end in a hang.

    Example:
        files = glob.glob("data/*.png")             # in no order; another one on each host
        random.shuffle(files)                       # from another seed in each process
        loader = DataLoader(Images(files), sampler=DistributedSampler(files))

    Fix:
        Put it in one order, with one seed, or make it on rank 0 and send it:
            torch.manual_seed(0)                        # before samples are drawn
            files = sorted(glob.glob("data/*.png"))
            random.Random(0).shuffle(files)
            dist.broadcast_object_list(files)
    """

    code = "DD111"
    title = "every rank has the same dataset"
    explained_by = ("DD105",)

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        rounds = [*training_rounds(recordings), *evaluation_rounds(recordings)]
        divided = _by_dataset(shared for shared in rounds if shared.divided and not _is_kept_by_node(shared))
        self.require(divided, "no sampler divides a dataset among ranks")
        if differing := [finding for _, finding in by_loader(divided, self._differs)]:
            return differing
        first = divided[0]
        if first.one_dataset is None:
            return Skipped(f"the samples of {first.loader.dataset} cannot be compared, only its length")
        return Passed(f"{first.loader.dataset} has the same {first.loader.samples} samples on every rank")

    def _differs(self, shared: SharedPass) -> Finding | None:
        if parts := _parts_of_ranks(shared):
            return self._divided_twice(shared, parts)
        lengths = by_value({rank: loader.samples or 0 for rank, loader in shared.loaders.items()})
        if len(lengths) > 1:
            fewest, most = min(lengths), max(lengths)
            return self.fail(
                f"{shared.loader.dataset} has {fewest} samples on {ranks_phrase(lengths[fewest])} and {most} "
                f"on {ranks_phrase(lengths[most])}",
                **shared.fields(shared.loaders, lambda it: f"{it.samples or 0} samples", cause=_draw(shared)),
            )
        if shared.one_dataset is not False:
            return None
        return self.fail(
            f"the {shared.loader.samples} samples of {shared.loader.dataset} differ between "
            f"{ranks_phrase(shared.ranks)} in content or order",
            **shared.fields(shared.loaders, lambda loader: f"content {loader.content}", cause=_draw(shared)),
        )

    def _divided_twice(self, shared: SharedPass, parts: Mapping[int, frozenset[int]]) -> Finding:
        samples = frozenset[int]().union(*parts.values())
        never = len(samples.difference(*(shared.indices or {}).values()))
        return self.fail(
            f"{shared.loader.dataset} is divided among {ranks_phrase(shared.ranks)} twice: {never} of {len(samples)} "
            "samples are never drawn",
            why="Each rank has taken a part of the dataset, and its sampler takes of that only every n-th sample "
            "again. The same indices are drawn of every part, so what is left out is never trained on.",
            fix="sampler = DistributedSampler(dataset)    # over the whole dataset\n"
            "loader = DataLoader(part, batch_size, shuffle=True)    # or no such sampler, where each has its part",
            **shared.fields(parts, lambda it: f"has a part of {len(it)} samples", where=shared.sampler_at),
        )


def _parts_of_ranks(shared: SharedPass) -> dict[int, frozenset[int]]:
    """The part that each rank has taken of one dataset, where none of them share a sample."""
    parts: dict[int, frozenset[int]] = {}
    taken = set[int]()
    for rank in shared.ranks:
        part = shared.part(rank)
        if not part or not taken.isdisjoint(part):
            return {}
        parts[rank] = part
        taken |= part
    return parts


def _draw(shared: SharedPass) -> Where | None:
    """The line that makes the dataset another one on each rank, where it is seen."""
    return dataset_draw(shared.at, next(iter(shared.recordings.values())).script)


def _by_dataset(rounds: Iterable[SharedPass]) -> list[SharedPass]:
    """The first round over each dataset: several DataLoaders over one that differs have one cause."""
    first: dict[Hashable, SharedPass] = {}
    for shared in rounds:
        contents = tuple((rank, loader.content) for rank, loader in shared.loaders.items())
        known = all(content is not None for _, content in contents)
        first.setdefault(contents if known else (shared.about, shared.number), shared)
    return list(first.values())


def _is_kept_by_node(shared: SharedPass) -> bool:
    """Whether samplers divide among the ranks of a node, each of which has data of its own."""
    replicas = {sampler.replicas or 0 for sampler in shared.samplers.values()}
    hosts = {rank: recording.host for rank, recording in shared.recordings.items()}
    nodes = len(set(hosts.values()))
    if len(replicas) != 1 or replicas.pop() >= len(shared.members) or nodes < 2:
        return False
    return len({(hosts[rank], shared.loaders[rank].content) for rank in shared.ranks}) == nodes
