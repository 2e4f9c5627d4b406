from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed, Skipped, Subject, Where
from ddpdoctor.recorder.events.training import Draws, Forward
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, TrainingStep
from ddpdoctor.trace.dataset_draws import shared_seed
from ddpdoctor.trace.joint_training import training_steps
from ddpdoctor.trace.loading import SharedPass, by_loader, groups, training_rounds

ENOUGH = 2
"""Training steps, or batches, that have to be alike."""
_MOST = 624
"""How many numbers :class:`Draws` tells."""
_LOADING = ("torch", "numpy", "python")


@dataclass(frozen=True)
class _Alike:
    """Random numbers that all ranks of a group draw alike."""

    ranks: tuple[int, ...]
    stream: str
    """Whose seed it is: ``torch``, ``numpy``, ``python`` or ``cuda``."""
    time: float
    """When they were drawn first."""
    headline: str
    at: Where | None
    """The line that shows it, where no seed was seen."""
    evidence: tuple[str, ...]
    about: tuple[Subject, ...] = ()


class SameRandomStream(Check):
    """Every rank draws the same random numbers.

    What it finds:
        Random numbers that are equal on all ranks, because all use the same seed: dropout masks; augmentation, by
        DataLoader workers or in the main process (num_workers=0); and what a training step draws for each sample of
        its batch, as the noise and time steps of a diffusion model, before the forward or inside it. The states of
        the global streams of torch, CUDA, NumPy and Python are compared, of those that moved. A number that is drawn
        once for a whole batch is left alone: where it chooses a branch, ranks have to draw it alike. The script's own
        generators are not compared. This is information only.

    Why it matters:
        Dropout masks, noise and augmentations are meant to differ between the samples of a batch. Where ranks share
        one stream, sample 0 of every rank gets the same mask, so a batch of 4 ranks holds a quarter of the
        randomness. Training works; it regularises less. Tensor parallelism needs equal streams.

    Example:
        torch.manual_seed(42)                   # on every rank, before and after the wrap

    Fix:
        Seed alike where weights or the dataset are made, then apart:
            model = DistributedDataParallel(Model())
            torch.manual_seed(seed + dist.get_rank())    # and numpy.random.seed, random.seed
        Where ranks have to choose the same branch or size, keep the global seed equal, and give each a generator:
            generator = torch.Generator(device).manual_seed(seed + dist.get_rank())
            noise = torch.randn(shape, generator=generator, device=device)
    """

    code = "DD109"
    title = "random numbers differ between ranks"

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        looked_at: dict[str, None] = {}
        alike = []
        for group in groups(recordings):
            members = {rank: recordings[rank] for rank in group}
            alike += [*_dropout(members, looked_at), *_in_steps(members, looked_at)]
        alike += _augmented(recordings, looked_at)
        if alike:
            by_ranks = {first.ranks: first for first in reversed(alike)}
            return [
                self._finding([source for source in alike if source.ranks == ranks], recordings)
                for ranks in reversed(by_ranks)
            ]
        if looked_at:
            return Passed(f"each rank draws different random numbers: {', '.join(looked_at)}")
        return Skipped(
            "neither dropout, nor loading of samples, nor a training step draws from the global "
            "random streams for each sample; the script's own generators are not compared"
        )

    def _finding(self, alike: list[_Alike], recordings: Mapping[int, Recording]) -> Finding:
        first = alike[0]
        stream = "torch" if first.stream == "cuda" else first.stream
        seed = shared_seed({rank: recordings[rank] for rank in first.ranks}, (stream,), first.time)
        evidence = [Evidence(text, source.ranks) for source in alike for text in source.evidence]
        if seed is not None and seed.value is not None:
            evidence.insert(0, Evidence(f"{seed.stream} was seeded with {seed.value}", first.ranks))
        return self.info(
            first.headline,
            where=first.at if seed is None else seed.at,
            evidence=tuple(evidence),
            about=first.about,
        )


def _dropout(group: Mapping[int, Recording], looked_at: dict[str, None]) -> Iterator[_Alike]:
    """Training forwards in which every rank has active dropout, and all begin in the same random state."""
    states: list[tuple[bool, Forward]] = []
    for _, row in training_steps(group):
        random = [[it for it in step.forwards if it.grad and it.random] for step in row.values()]
        if all(random):
            states.append((len({forwards[0].random for forwards in random}) == 1, random[0][0]))
    if states:
        looked_at["dropout"] = None
    if len(states) < ENOUGH or not all(equal for equal, _ in states):
        return
    forward, ranks = states[0][1], tuple(group)
    yield _Alike(
        ranks,
        "torch",
        forward.time,
        f"{ranks_phrase(ranks)} draw the same dropout masks in each of {plural(len(states), 'training step')}",
        forward.at,
        (f"random state {forward.random} before the first forward{_line(forward.at)}",),
    )


def _in_steps(group: Mapping[int, Recording], looked_at: dict[str, None]) -> Iterator[_Alike]:
    """What training steps draw for each sample, outside their forwards, and inside where no dropout is active."""
    rows = [row for _, row in training_steps(group) if any(step.draws for step in row.values())]
    ranks = tuple(group)
    for inside in (False, True):
        for stream in ("torch", "cuda", "numpy"):
            drawn = [{rank: _draws(step, stream, inside=inside) for rank, step in it.items()} for it in rows]
            steps = [(row, draws) for row, draws in zip(rows, drawn, strict=True) if any(draws.values())]
            if len(steps) < ENOUGH:
                continue
            looked_at["what a training step draws"] = None
            if not all(_are_alike(draws) for _, draws in steps):
                continue
            row, draws = steps[0]
            at = next(it.at for it in row[ranks[0]].draws if it.inside == inside and stream in it.streams)
            place = "in the forward" if inside else "outside its forward"
            first = draws[ranks[0]][0]
            yield _Alike(
                ranks,
                stream,
                row[ranks[0]].time,
                f"{ranks_phrase(ranks)} draw the same random numbers from {stream} in each of "
                f"{plural(len(steps), 'training step')}, {place}",
                at,
                (f"{stream} moved from state {first.began} to {first.ended} {place}{_line(at)}",),
            )


def _draws(step: TrainingStep, stream: str, *, inside: bool) -> list[Draws]:
    """What one rank drew from a stream in a step, at least one number for each sample."""
    if inside and any(forward.random for forward in step.forwards):
        return []
    batch = min((forward.batch for forward in step.forwards if forward.batch), default=1)
    drawn = (it.streams[stream] for it in step.draws if it.inside == inside and stream in it.streams)
    return [draws for draws in drawn if draws.numbers >= min(max(batch, 2), _MOST)]


def _are_alike(draws: Mapping[int, list[Draws]]) -> bool:
    first, *others = draws.values()
    return bool(first) and all(other == first for other in others)


def _augmented(recordings: Mapping[int, Recording], looked_at: dict[str, None]) -> Iterator[_Alike]:
    """Loaders whose samples are augmented alike on every rank."""
    rounds = list(training_rounds(recordings))
    workers = [worker for shared in rounds for pass_ in shared.passes.values() for worker in pass_.workers]
    if any(name in _LOADING for worker in workers for name in worker.drew):
        looked_at["augmentation in DataLoader workers"] = None
    for shared, stream in by_loader(rounds, _workers_draw_alike):
        states = (
            f"worker {worker.worker} began with state {worker.seeds[stream]} of {stream}"
            for worker in next(iter(shared.passes.values())).workers
        )
        yield _of_loader(shared, stream, "the DataLoader workers", tuple(states), "torch")
    if any(_loading(each, rank, stream) for each in rounds for rank in each.ranks for stream in _LOADING):
        looked_at["augmentation in the main process"] = None
    for shared, stream in by_loader(rounds, _main_draws_alike):
        first = _loading(shared, shared.ranks[0], stream)[0]
        text = f"{stream} moved from state {first.began} to {first.ended} while the first batch was loaded"
        yield _of_loader(shared, stream, "the datasets", (text,), stream)


def _of_loader(shared: SharedPass, stream: str, who: str, evidence: tuple[str, ...], seeded: str) -> _Alike:
    return _Alike(
        shared.ranks,
        seeded,
        next(iter(shared.passes.values())).begin,
        f"{who} of {ranks_phrase(shared.ranks)} draw the same random numbers from {stream}",
        shared.at,
        evidence,
        shared.about,
    )


def _workers_draw_alike(shared: SharedPass) -> str | None:
    """A global random stream that the workers of every rank began in the same states of, and drew from."""
    first, *others = (pass_.workers for pass_ in shared.passes.values())
    for name in (name for name in (first[0].seeds if first else ()) if name in _LOADING):
        states = [worker.seeds.get(name) for worker in first]
        drew = all(name in worker.drew for workers in (first, *others) for worker in workers)
        if drew and all([worker.seeds.get(name) for worker in workers] == states for workers in others):
            return name
    return None


def _main_draws_alike(shared: SharedPass) -> str | None:
    """A random stream that loading in the main process draws from, in the same states on every rank."""
    for stream in _LOADING:
        draws = [_loading(shared, rank, stream) for rank in shared.ranks]
        count = min(len(drawn) for drawn in draws)
        if count >= ENOUGH and all(drawn[:count] == draws[0][:count] for drawn in draws):
            return stream
    return None


def _loading(shared: SharedPass, rank: int, stream: str) -> list[Draws]:
    """What a rank drew for each of its first batches, if it drew for each sample of each; a stream may shuffle so."""
    loader, batches = shared.loaders[rank], shared.passes[rank].draws
    drawn = [batch[stream] for batch in batches if stream in batch]
    least = min(loader.batch_size or 1, _MOST)
    complete = len(drawn) == len(batches) and all(draws.numbers >= least for draws in drawn)
    return drawn if complete and not loader.streams else []


def _line(at: Where | None) -> str:
    return f", {at}" if at else ""
