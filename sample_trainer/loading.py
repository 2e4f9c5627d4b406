"""Which rank gets which samples.

The k-th batches of all ranks together are one batch of a single process. What becomes of the rest that does not divide
evenly is agreed upon in windows.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.distributed as dist
from config import Data
from data import Sample, Text
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

Batch = tuple[Tensor, Tensor]


def create_distributed_dataloader(dataset: Text, data: Data, *, train: bool, seed: int = 0) -> Loader:
    """This rank's share of a dataset, as batches.

    For training, shuffled anew in each epoch. For evaluation, in order, and every sample exactly once over all
    ranks: DistributedSampler would pad to equal shares by repeating samples, and a repeated sample counts twice.
    """
    sampler = Share(dataset, shuffle=train, seed=seed, cut=train and data.uneven == "drop")
    return Loader(dataset, sampler, data, seed)


class Loader:
    """A DataLoader that can begin in the middle of an epoch."""

    def __init__(self, dataset: Text, sampler: Share, data: Data, seed: int) -> None:
        self._sampler, self._seed = sampler, seed
        # Of its own: each iterator draws the seed of its workers, and that must not change what the model draws.
        self._generator = torch.Generator()
        self.batches: DataLoader[Batch] = DataLoader(
            dataset,
            data.batch_size,
            sampler=sampler,
            drop_last=sampler.cut,
            num_workers=data.workers,
            pin_memory=data.pin_memory,
            generator=self._generator,
        )

    @property
    def even(self) -> bool:
        """Whether every rank has equally many batches, all of them full: the sampler has seen to it."""
        return self._sampler.cut

    def begin(self, epoch: int, samples: int = 0) -> None:
        """Go to a place in an epoch: after so many samples of all ranks together."""
        # Without it every epoch would have the order of the first.
        self._sampler.set_epoch(epoch)
        self._sampler.begin = samples
        # A worker's seed is this one's number and its own, so no two workers of all ranks draw the same.
        seed = (self._seed * 1_000_003 + epoch) * 1_000_003 + dist.get_rank() * 1_009
        self._generator.manual_seed(seed % 2**63)  # a date as the seed makes it larger than torch takes

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


class Share(DistributedSampler[Sample]):
    """Every world_size-th sample, as DistributedSampler has it; but it repeats none, and can begin anywhere. With
    ``cut``, only so many that every rank has equally many."""

    def __init__(self, dataset: Text, *, cut: bool, **options: Any) -> None:
        super().__init__(dataset, drop_last=cut, **options)
        self.cut = cut
        if not cut:
            self.total_size = len(dataset)  # nothing is repeated to make it divisible
        self.begin = 0
        """After how many samples of all ranks together, whatever number of ranks took them."""

    def _positions(self) -> range:
        """This rank's places in the order of all."""
        left = len(cast(Text, self.dataset)) - self.begin
        # After another number of ranks what is left may not divide, and a rank with one more would wait for ever.
        left -= left % self.num_replicas if self.cut else 0
        return range(self.begin + self.rank, self.begin + left, self.num_replicas)

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)  # the same on every rank
        total = len(cast(Text, self.dataset))
        order = torch.randperm(total, generator=generator).tolist() if self.shuffle else range(total)
        return iter([order[position] for position in self._positions()])

    def __len__(self) -> int:
        return len(self._positions())
