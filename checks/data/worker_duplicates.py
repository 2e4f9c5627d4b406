from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed
from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_key, of_loader, on_each_rank
from ddpdoctor.trace.data import Pass


class WorkerDuplicates(Check):
    """DataLoader workers yield duplicate samples or random numbers.

    What it finds:
        Workers of one rank that yield the same samples of a stream, because it is divided by rank and not by
        worker; and workers that began with the same state of a random generator and drew from it, because
        worker_init_fn gives every worker the same seed, or the generator is one that the dataset holds and each worker
        has a copy of. Workers with equal seeds that draw nothing are left alone.

    Why it matters:
        Each worker has a copy of the dataset. Four workers of a stream that does not ask for its worker's number
        yield every sample four times; four with one seed crop and flip four images alike. The loss looks sound.

    Example:
        class Lines(IterableDataset):
            def __iter__(self):                           # the same in every worker
                yield from islice(self.lines, dist.get_rank(), None, dist.get_world_size())

    Fix:
        Divide a stream by rank and worker:
            info = get_worker_info()
            workers, worker = (info.num_workers, info.id) if info else (1, 0)
            first = rank * workers + worker
            yield from islice(self.lines, first, None, world_size * workers)
        Let torch seed the workers (it does, numpy too), or add what differs:
            def seed_worker(worker):
                numpy.random.seed(torch.initial_seed() % 2**32)
                info = get_worker_info()
                info.dataset.rng = random.Random(info.seed)    # one for each worker, in place of a copy
    """

    code = "DD108"
    title = "DataLoader workers yield different samples and random numbers"
    explained_by = ("DD102",)

    def examine_run(self, trace: Trace) -> Judgement:
        passes = on_each_rank(trace.training(), _with_workers)
        self.require(passes, "no training pass has more than one worker")
        loader, pass_ = passes[0][1]
        return [
            *map(self._samples, _of_loaders(passes, _repeat)),
            *map(self._numbers, _of_loaders(passes, _drawn_alike)),
        ] or Passed(f"{len(pass_.workers)} workers of {loader.dataset} do not repeat each other")

    def _samples(self, repeating: Mapping[int, "Repeated"]) -> Finding:
        loader, pass_, workers = next(iter(repeating.values()))
        return self.fail(
            f"workers {workers} of {ranks_phrase(repeating)} yield the same samples of {loader.dataset}",
            where=loader.at or pass_.at,
            evidence=[
                Evidence(f"worker {it.worker} begins with samples {', '.join(it.samples[:3])}", (rank,))
                for rank, (_, pass_, _) in repeating.items()
                for it in pass_.workers
            ],
            about=of_loader(loader),
        )

    def _numbers(self, alike: Mapping[int, "Repeated"]) -> Finding:
        loader, pass_, stream = next(iter(alike.values()))
        return self.fail(
            f"the {len(pass_.workers)} workers of each of {ranks_phrase(alike)} draw the same random numbers "
            f"from {stream}",
            where=loader.at or pass_.at,
            evidence={
                rank: f"each worker has state {pass_.workers[0].seeds[name]} of {name}"
                for rank, (_, pass_, name) in alike.items()
            },
            about=of_loader(loader),
        )


Repeated = tuple[Loader, Pass, str]
"""A loader and a pass over it in which workers repeat each other, and in what."""


def _with_workers(recording: Recording) -> list[tuple[Loader, Pass]]:
    passes = (pass_ for pass_ in recording.training_passes if len(pass_.workers) > 1)
    return [(loader, pass_) for pass_ in passes if (loader := recording.loader(pass_.loader))]


def _of_loaders(
    passes: Iterable[tuple[int, tuple[Loader, Pass]]], look: Callable[[Loader, Pass], str | None]
) -> list[dict[int, Repeated]]:
    """By loader, the first pass of each rank in which workers repeat each other in this way."""
    repeated = ((rank, (*pair, what)) for rank, pair in passes if (what := look(*pair)))
    return by_key(repeated, lambda repeat: of_loader(repeat[0]))


def _repeat(loader: Loader, pass_: Pass) -> str | None:
    """The first two workers of a stream that begin alike: with two samples in common, or the only one they have.

    Where samples of one worker repeat each other, as short windows of few tokens do, half have to be common.
    """
    if not loader.streams:
        return None
    for worker, other in combinations(pass_.workers, 2):
        common = set(worker.samples) & set(other.samples)
        fewest = min(len(set(worker.samples)), len(set(other.samples)))
        repeats = any(len(set(drawn.samples)) < len(drawn.samples) for drawn in (worker, other))
        if common and len(common) >= (fewest / 2 if repeats else min(2, fewest)):
            return f"{worker.worker} and {other.worker}"
    return None


def _drawn_alike(loader: Loader, pass_: Pass) -> str | None:
    """A generator that every worker began with in the same state and drew from."""
    for name in pass_.workers[0].seeds:
        states = {worker.seeds.get(name) for worker in pass_.workers}
        if len(states) == 1 and all(name in worker.drew for worker in pass_.workers):
            return name
    return None
