from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from ddpdoctor.check import Check
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import Loader, Pass
from ddpdoctor.trace.recording import Recording


class WorkerDuplicates(Check):
    """The DataLoader's workers repeat each other.

    What it finds:
        Workers of one rank that yield the same samples of a stream, because it is divided by rank and not by
        worker; and workers that began with the same state of a random generator and drew from it, because
        worker_init_fn gives every worker the same seed. Workers with equal seeds that draw nothing are left alone.

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
    """

    code = "DD108"
    name = "worker-duplicates"
    family = Family.DATA
    title = "workers load samples and draw numbers of their own"
    explained_by = ("DD102",)

    def examine_run(self, trace: Trace) -> Judgement:
        passes = {rank: own for rank, one in trace.training().items() if (own := _with_workers(one))}
        if not passes:
            return Skipped("no training pass has more than one worker")
        repeating = {rank: found for rank, own in passes.items() if (found := _first(own, _repeat))}
        if repeating:
            return self._samples(repeating)
        alike = {rank: found for rank, own in passes.items() if (found := _first(own, _drawn_alike))}
        if alike:
            return self._numbers(alike)
        loader, one = next(iter(passes.values()))[0]
        return Passed(f"{len(one.workers)} workers of {loader.dataset} do not repeat each other")

    def _samples(self, repeating: Mapping[int, "Seen"]) -> Finding:
        loader, one, workers = next(iter(repeating.values()))
        return self.fail(
            f"workers {workers} of {ranks_phrase(repeating)} yield the same samples of {loader.dataset}",
            why=f"Each of {len(one.workers)} workers has its own copy of the stream and yields all of it, so samples "
            "are trained on more than once in a pass.",
            fix="info = get_worker_info()\nworkers, worker = (info.num_workers, info.id) if info else (1, 0)\n"
            "first = rank * workers + worker\nyield from islice(samples, first, None, world_size * workers)",
            ranks=tuple(repeating),
            where=loader.at or one.at,
            evidence=tuple(
                Evidence(
                    f"worker {worker.worker} begins with samples {', '.join(worker.samples[:3])}", (rank,)
                )
                for rank, (_, own, _) in repeating.items()
                for worker in own.workers
            ),
        )

    def _numbers(self, alike: Mapping[int, "Seen"]) -> Finding:
        loader, one, stream = next(iter(alike.values()))
        return self.fail(
            f"the {len(one.workers)} workers of each of {ranks_phrase(alike)} draw the same random numbers from "
            f"{stream}",
            why="Every worker began with the same state of this generator, and the dataset draws from it, so all "
            "workers augment their samples in the same way. worker_init_fn gives them one seed.",
            fix="def seed_worker(worker):\n    numpy.random.seed(torch.initial_seed() % 2**32)\n"
            "    random.seed(torch.initial_seed())",
            ranks=tuple(alike),
            where=loader.at or one.at,
            evidence=tuple(
                Evidence(f"each worker began with state {own.workers[0].seeds[name]} of {name}", (rank,))
                for rank, (_, own, name) in alike.items()
            ),
        )


Seen = tuple[Loader, Pass, str]
"""A loader and a pass over it in which workers repeat each other, and in what."""


def _with_workers(recording: Recording) -> list[tuple[Loader, Pass]]:
    loaders = {loader.index: loader for loader in recording.loaders}
    return [
        (loaders[one.loader], one)
        for one in recording.passes
        if one.training and len(one.workers) > 1 and one.loader in loaders
    ]


def _first(passes: Sequence[tuple[Loader, Pass]], look: Callable[[Loader, Pass], str | None]) -> Seen | None:
    return next(((loader, one, what) for loader, one in passes if (what := look(loader, one))), None)


def _repeat(loader: Loader, one: Pass) -> str | None:
    """The first two workers of a stream that begin alike: with two samples in common, or the only one they have."""
    if not loader.streams:
        return None
    for worker, other in combinations(one.workers, 2):
        common = set(worker.samples) & set(other.samples)
        fewest = min(len(set(worker.samples)), len(set(other.samples)))
        if common and len(common) >= min(2, fewest):
            return f"{worker.worker} and {other.worker}"
    return None


def _drawn_alike(loader: Loader, one: Pass) -> str | None:
    """A generator that every worker began with in the same state and drew from."""
    for name in one.workers[0].seeds:
        states = {worker.seeds.get(name) for worker in one.workers}
        if len(states) == 1 and all(name in worker.drew for worker in one.workers):
            return name
    return None
