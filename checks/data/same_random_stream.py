from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.model import Evidence, Finding, Judgement, Passed, Skipped
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.align import training_steps
from ddpdoctor.trace.loading import Round, by_loader, groups, training_rounds
from ddpdoctor.trace.recording import Recording

ENOUGH_STEPS = 2


class SameRandomStream(Check):
    """Every rank draws the same random numbers.

    What it finds:
        Training forwards with active dropout that begin with the same random state on every rank, and DataLoader
        workers that augment samples from the same random numbers on every rank: all ranks were given one seed.
        This is information only. Random numbers that the training step itself draws, as noise or time steps, and
        augmentation in the main process (num_workers=0) are not compared.

    Why it matters:
        Dropout masks, noise and augmentations are meant to differ between the samples of a batch. Where ranks share
        one stream, sample 0 of every rank gets the same mask, so a batch of 4 ranks holds a quarter of the
        randomness. Training works; it regularises less. Tensor parallelism needs equal streams.

    Example:
        torch.manual_seed(42)                   # on every rank, before and after the wrap

    Fix:
        Seed alike where weights or the dataset are made, then apart:
            model = DistributedDataParallel(Model())
            torch.manual_seed(seed + dist.get_rank())
    """

    code = "DD109"
    title = "random numbers differ between ranks"

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        active = False
        for group in groups(recordings):
            states = _states({rank: recordings[rank] for rank in group})
            active = active or bool(states)
            if len(states) >= ENOUGH_STEPS and all(equal for equal, _ in states):
                return self._dropout(group, len(states), states[0][1])
        alike = by_loader(training_rounds(recordings), _augments_alike)
        if alike:
            return [self._augmentation(shared, stream) for shared, stream in alike]
        if not active:
            return Skipped(
                "no dropout is active and no workers draw random numbers; what the script itself draws, or a dataset "
                "in the main process, is not compared"
            )
        return Passed("each rank enters its dropout layers with its own random state")

    def _dropout(self, group: tuple[int, ...], steps: int, forward: Forward) -> Finding:
        return self.info(
            f"{ranks_phrase(group)} draw the same dropout masks in each of {plural(steps, 'training step')}",
            why="Every rank was given the same seed, so the n-th sample of each rank gets the same mask.",
            fix="torch.manual_seed(seed + dist.get_rank())    # after the model was made and wrapped",
            ranks=group,
            where=forward.at,
            evidence=(Evidence(f"random state {forward.random} before the first forward", group),),
        )

    def _augmentation(self, shared: Round, stream: str) -> Finding:
        ranks = shared.ranks
        return self.info(
            f"the DataLoader workers of {ranks_phrase(ranks)} draw the same random numbers from {stream}",
            why="Worker seeds are drawn from the rank's own random state, and every rank has the same seed, "
            "so the n-th sample of each rank is augmented alike.",
            fix="torch.manual_seed(seed + dist.get_rank())    # before the loop over the loader",
            ranks=ranks,
            where=shared.at,
            evidence=tuple(
                Evidence(f"worker {worker.worker} began with state {worker.seeds[stream]} of {stream}", ranks)
                for worker in next(iter(shared.passes.values())).workers
            ),
            about=shared.about,
        )


def _states(recordings: Mapping[int, Recording]) -> list[tuple[bool, Forward]]:
    """For each training step in which every rank has active dropout: whether all began in the same random state."""
    states = []
    for _, row in training_steps(recordings):
        random = [
            [forward for forward in step.forwards if forward.grad and forward.random] for step in row.values()
        ]
        if all(random):
            states.append((len({forwards[0].random for forwards in random}) == 1, random[0][0]))
    return states


def _augments_alike(shared: Round) -> str | None:
    """A random stream that the workers of every rank began in the same states of, and drew from."""
    first, *others = (pass_.workers for pass_ in shared.passes.values())
    for name in first[0].seeds if first else ():
        states = [worker.seeds.get(name) for worker in first]
        drew = all(name in worker.drew for workers in (first, *others) for worker in workers)
        if drew and all([worker.seeds.get(name) for worker in workers] == states for workers in others):
            return name
    return None
