from ddpdoctor.check import Check, Findings, Passed, Skipped
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.loading import SharedPass, by_loader, training_rounds

ENOUGH = 4
"""Samples in common from which it is no accident; a quarter of those that were seen, for a stream that is shuffled."""


class StreamNotSharded(Check):
    """A stream of samples is not divided among the ranks.

    What it finds:
        Training passes over an IterableDataset in which every rank gets the same batches, although no sampler can
        divide a stream: the dataset has to do so, by rank and by DataLoader worker.

    Why it matters:
        A sampler cannot divide an IterableDataset. Every rank reads and computes everything, so adding ranks gains
        nothing, and an epoch sees each sample once for every rank. Where the stream is divided by worker only, it is
        divided on each rank alike.

    Example:
        class Lines(IterableDataset):
            def __iter__(self):
                return iter(open(self.path))         # every rank reads every line

    Fix:
        Take every n-th sample of one order, n being ranks times workers:
            rng = random.Random(seed + epoch)    # on all ranks alike, where samples are shuffled
            info = get_worker_info()
            workers, worker = (info.num_workers, info.id) if info else (1, 0)
            first = dist.get_rank() * workers + worker
            yield from itertools.islice(samples, first, None, dist.get_world_size() * workers)
        For Hugging Face datasets:
            dataset = split_dataset_by_node(dataset, rank=dist.get_rank(), world_size=dist.get_world_size())
    """

    code = "DD102"
    title = "streams are divided among the ranks"
    explained_by = ("DD227",)

    def examine_run(self, trace: Trace) -> Findings:
        rounds = [shared for shared in training_rounds(trace.training_of_several()) if shared.loader.streams]
        self.require(rounds, "no rank trains on an IterableDataset")
        for shared, _ in by_loader(rounds, _is_repeated):
            batches_seen = min(len(pass_.content) for pass_ in shared.passes.values())
            common, first = _common(shared)
            what = plural(batches_seen, "batch") if shared.same_batches else "samples"
            ranks = ranks_phrase(shared.ranks)
            is_part = not shared.same_batches and len(common) < first
            yield self.fail(
                f"{ranks} get {len(common)} of their first {first} samples in common from the stream "
                f"{shared.loader.dataset}"
                if is_part
                else f"{ranks} get the same first {what} from the stream {shared.loader.dataset}",
                **shared.fields(shared.loaders, lambda loader: plural(loader.workers, "worker")),
            )
        if not all(pass_.content or pass_.workers for pass_ in rounds[0].passes.values()):
            yield Skipped("the samples of the stream were not recorded")
        yield Passed(f"{ranks_phrase(rounds[0].ranks)} get different batches from {rounds[0].loader.dataset}")


def _is_repeated(shared: SharedPass) -> bool:
    return (shared.same_batches or _share_samples(shared)) and not shared.takes_own_parts


def _share_samples(shared: SharedPass) -> bool:
    """Whether ranks began with samples that others began with, each of which is unlike the rest of its stream."""
    of_rank = [_first_samples(pass_) for pass_ in shared.passes.values()]
    if any(len(set(samples)) < len(samples) for samples in of_rank):
        return False
    common, first = _common(shared)
    return len(common) >= max(ENOUGH, first // 4)


def _common(shared: SharedPass) -> tuple[set[str], int]:
    """The samples with which all ranks began, and how many of each rank were looked at."""
    of_rank = [_first_samples(pass_) for pass_ in shared.passes.values()]
    return set.intersection(*map(set, of_rank)), min(map(len, of_rank))


def _first_samples(pass_: Pass) -> list[str]:
    by_worker = [sample for worker in pass_.workers for sample in worker.samples]
    return by_worker or [sample for sample in pass_.samples if sample is not None]
