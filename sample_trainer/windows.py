"""Which batches make one optimizer step, and when all ranks leave the loop: together, or DDP hangs.

Every backward that synchronises waits for all ranks. A rank whose data ends one batch earlier than the others'
would leave them waiting for ever. So before each step the ranks add up how much each of them has, which gives
two things at once: the number of targets by which the loss of the step is divided, and when to stop.

    drop    stop as soon as one rank has nothing left
    pad     go on until no rank has anything left; a rank without data takes part with a batch that weighs nothing
    join    a rank without data leaves, and torch's Join answers the collectives of the others in its place
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from data import IGNORED
from distributed import share_state
from loading import Batch
from torch import Tensor
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


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
    """The steps of an epoch: on every rank equally many, each with ``size`` batches; the last may have fewer.

    The ranks count the next window while this one is trained on, so that nobody waits for the answer.

    Args:
        limit: at most so many.
        nothing: a batch that weighs nothing, for a rank that has none left.
        group: adds up numbers in host memory; the default one where that does.
        even: whether all ranks have equally much in every batch, so that one's own numbers tell the others'.
    """
    batches = iter(loader)
    numbers = itertools.count() if limit is None else range(limit)
    counted = (_Counted(list(itertools.islice(batches, size)), group, even) for _ in numbers)
    coming = next(counted, None)
    while coming:
        targets, samples, ranks = coming.result()
        if ranks == 0 or (uneven == "drop" and ranks < dist.get_world_size()):
            return
        window = Window(coming.batches or [nothing], targets, samples)
        coming = next(counted, None)
        yield window


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


class _Counted:
    """Batches of this rank, and a sum over all ranks that is under way."""

    def __init__(self, batches: list[Batch], group: dist.ProcessGroup | None, even: bool) -> None:
        self.batches = batches
        mine = _measure(batches)
        self._of_all = [count * dist.get_world_size() for count in mine] if even else None
        if self._of_all is None:
            self._sums = torch.tensor(mine)
            self._work = dist.all_reduce(self._sums, group=group, async_op=True)

    def result(self) -> list[int]:
        if self._of_all is None:
            self._work.wait()
            self._of_all = self._sums.tolist()
        return self._of_all


def joined_windows(loader: Iterable[Batch], limit: int | None, counts: Counts) -> Iterator[Window]:
    """The steps of an epoch under Join: on every rank as many as it has data for, each with one batch."""
    for batch in itertools.islice(loader, limit):
        targets, samples, _ = counts.sum(torch.tensor(_measure([batch])))
        yield Window([batch], targets, samples)


class Counts(Joinable):
    """The sum over all ranks, as something that Join answers for a rank that has left: with nothing."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def sum(self, mine: Tensor) -> list[int]:
        """Tell Join that a step begins here, and add up."""
        Join.notify_join_context(self)
        sums = mine.to(self._device)
        dist.all_reduce(sums)
        return sums.tolist()

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _Nothing(self._device)

    @property
    def join_device(self) -> torch.device:
        return self._device

    @property
    def join_process_group(self) -> Any:
        return dist.group.WORLD


class _Nothing(JoinHook):
    def __init__(self, device: torch.device) -> None:
        self._device = device

    def main_hook(self) -> None:
        """What a rank without data does in each step of the others."""
        dist.all_reduce(torch.zeros(3, dtype=torch.long, device=self._device))


def catch_up(parts: Mapping[str, Any], step: int, device: torch.device) -> int:
    """After Join, which gives every rank the weights of one that took all steps, and nothing besides.

    Without the rest, a rank that left early would go on with an optimizer that has not seen the last steps,
    and its weights would part from the others' in the next epoch.

    Args:
        parts: things with state_dict and load_state_dict, which become those of a rank that missed nothing.
        step: that this rank has come to.

    Returns:
        How many steps this rank missed.
    """
    steps = torch.zeros(dist.get_world_size(), dtype=torch.long, device=device)
    steps[dist.get_rank()] = step
    dist.all_reduce(steps)
    share_state(parts, source=int(steps.argmax()))
    return int(steps.max()) - step
