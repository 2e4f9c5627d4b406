"""Which batches make one optimizer step, and when all ranks leave the loop: together, or DDP hangs.

Every backward that synchronises waits for all ranks. A rank whose data ends one batch earlier than the others'
would leave them waiting for ever. So before each step the ranks add up how much each of them has, which gives
two things at once: the number of targets by which the loss of the step is divided, and when to stop.

    drop    stop as soon as one rank has nothing left
    pad     go on until no rank has anything left; a rank without data takes part with a batch that weighs nothing
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from data import IGNORED
from loading import Batch


@dataclass
class Window:
    """The batches of one optimizer step."""

    batches: list[Batch]
    targets: int
    """Of all ranks together: what the sum of their losses is divided by."""
    samples: int
    """Of all ranks together."""


def windows(
    loader: Iterable[Batch],
    size: int,
    limit: int | None,
    uneven: str,
    nothing: Batch,
    group: dist.ProcessGroup | None = None,
    *,
    even: bool = False,
) -> Iterator[Window]:
    """The steps of an epoch, at most ``limit``: on every rank equally many, each with ``size`` batches; the last may
    have fewer. ``nothing`` is a batch that weighs nothing, for a rank that has none left; ``group`` adds up numbers in
    host memory, as the default one may; ``even`` says that all ranks have equally much in every batch, so one's own
    numbers tell the others'."""
    batches = iter(loader)
    for _ in itertools.count() if limit is None else range(limit):
        mine = list(itertools.islice(batches, size))
        targets, samples, ranks = _of_all_ranks(_measure(mine), group, even)
        if ranks == 0 or (uneven == "drop" and ranks < dist.get_world_size()):
            return
        yield Window(mine or [nothing], targets, samples)


def _measure(batches: Iterable[Batch]) -> list[int]:
    """Targets, samples, and one rank if there are any."""
    targets = samples = 0
    for _, target in batches:
        weighs = target != IGNORED
        count = int(weighs.sum())
        targets += count
        # Mostly all of them count, and there is no need to look at each sample.
        samples += len(target) if count == target.numel() else int(weighs.view(len(target), -1).any(1).sum())
    return [targets, samples, int(samples > 0)]


def _of_all_ranks(mine: list[int], group: dist.ProcessGroup | None, even: bool) -> list[int]:
    """The sums over all ranks."""
    if even:
        return [count * dist.get_world_size() for count in mine]
    sums = torch.tensor(mine)
    dist.all_reduce(sums, group=group)
    return sums.tolist()
