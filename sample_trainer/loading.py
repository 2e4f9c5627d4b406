"""Which rank gets which samples: five strategies, one interface.

    sharded            every rank reads its own samples of a dataset in memory or on disk
    memory_mapped      the same, from a file that all ranks of a host map and none reads into memory
    dispatched         rank 0 alone reads, and sends each rank its part: for data that only one place can read
    iterable           a stream that can only be read from its front: every rank reads all of it and keeps its part
    sharded_iterable   a stream in many pieces, files for instance: each rank and worker reads pieces of its own

In each of them, the k-th batches of all ranks together are one batch of a single process. What becomes of the
rest that does not divide evenly is agreed upon in windows.py.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from config import Config, Data, TrainerError
from data import IGNORED, Material, Sample, Samples, load, write_text_file
from distributed import all_or_none, on_rank_0
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

Batch = tuple[Tensor, Tensor]

SHUFFLED = 1024  # samples of a stream among which the next is drawn
PIECES = 48  # of a stream that is read in pieces; divisible by many numbers of readers


def prepare_data(config: Config, folder: Path) -> Material:
    """Training and held-out samples, on every rank."""
    data = config.data
    if data.strategy == "memory_mapped":
        # Once, before anybody maps it; the run folder is on a disk that all ranks see, as for checkpoints.
        on_rank_0(lambda: write_text_file(data, folder), "the text cannot be written to the run folder")
    with all_or_none():
        return load(data, folder)


def create_distributed_dataloader(
    dataset: Samples, data: Data, *, train: bool, seed: int = 0, device: torch.device | None = None
) -> Loader | Dispatcher:
    """This rank's share of a dataset, as batches.

    For training, shuffled anew in each epoch. For evaluation, in order, and every sample exactly once over all
    ranks: DistributedSampler would pad to equal shares by repeating samples, and a repeated sample counts twice.
    """
    if data.strategy == "dispatched":
        return Dispatcher(dataset, data, train, seed, device or torch.device("cpu"))
    if train and "iterable" in data.strategy:
        stream = PieceStream if data.strategy == "sharded_iterable" else FrontStream
        return Loader(stream(dataset, data, seed), None, data, seed)
    sampler = Share(dataset, shuffle=train, seed=seed, cut=train and data.uneven == "drop")
    return Loader(dataset, sampler, data, seed)


class Loader:
    """A DataLoader that can begin in the middle of an epoch."""

    def __init__(self, dataset: Any, sampler: Share | None, data: Data, seed: int) -> None:
        self._source: Any = dataset if sampler is None else sampler  # an empty sampler is false
        self._seed = seed
        # Of its own: each iterator draws the seed of its workers, and that must not change what the model draws.
        self._generator = torch.Generator()
        self.batches: DataLoader[Batch] = DataLoader(
            dataset,
            data.batch_size,
            sampler=sampler,
            drop_last=sampler.cut if sampler is not None else data.uneven == "drop",
            num_workers=data.workers,
            pin_memory=data.pin_memory,
            generator=self._generator,
        )

    @property
    def even(self) -> bool:
        """Whether every rank has equally many batches, all of them full: the sampler has seen to it."""
        return isinstance(self._source, Share) and self._source.cut

    def begin(self, epoch: int, batches: int = 0, samples: int = 0) -> None:
        """Go to a place in an epoch: so many batches of this rank, so many samples of all ranks together."""
        # Without it every epoch would have the order of the first.
        self._source.set_epoch(epoch)
        self._source.skip(batches, samples)
        # A worker's seed is this one's number and its own, so no two workers of all ranks draw the same.
        seed = (self._seed * 1_000_003 + epoch) * 1_000_003 + dist.get_rank() * 1_009
        self._generator.manual_seed(seed % 2**63)  # a date as the seed makes it larger than torch takes

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)


class Share(DistributedSampler[Sample]):
    """Every world_size-th sample, as DistributedSampler has it; but it repeats none, and can begin anywhere.

    With ``cut``, only so many that every rank has equally many.
    """

    def __init__(
        self,
        dataset: Samples,
        *,
        shuffle: bool,
        seed: int,
        cut: bool,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(
            cast("Dataset[Sample]", dataset), num_replicas, rank, shuffle=shuffle, seed=seed, drop_last=cut
        )
        self.cut = cut
        if not cut:
            self.total_size = len(dataset)  # nothing is repeated to make it divisible
        self._begin = 0

    def skip(self, batches: int, samples: int) -> None:
        """Begin after so many samples of all ranks together, whatever number of ranks took them."""
        self._begin = samples

    def _positions(self) -> range:
        """This rank's places in the order of all."""
        left = len(cast(Samples, self.dataset)) - self._begin
        # After another number of ranks what is left may not divide, and a rank with one more would wait for ever.
        left -= left % self.num_replicas if self.cut else 0
        return range(self._begin + self.rank, self._begin + left, self.num_replicas)

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)  # the same on every rank
        total = len(cast(Samples, self.dataset))
        order = torch.randperm(total, generator=generator).tolist() if self.shuffle else range(total)
        return iter([order[position] for position in self._positions()])

    def __len__(self) -> int:
        return len(self._positions())


# --- Streams --------------------------------------------------------------------------------------------------


class Stream(IterableDataset[Sample]):
    """Samples one after the other. A worker has its own copy, which has to find out which worker it is."""

    def __init__(self, dataset: Samples, data: Data, seed: int) -> None:
        self._dataset, self._data, self._seed = dataset, data, seed
        self._rank, self._size = dist.get_rank(), dist.get_world_size()  # a worker is in no group
        self._epoch = self._skipped = 0

    def set_epoch(self, epoch: int) -> None:
        """Another order."""
        self._epoch = epoch

    def skip(self, batches: int, samples: int) -> None:
        """Begin after so many batches of this rank. Reading and dropping is all that a stream allows."""
        self._skipped = batches

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        turns = self._turns([self._count(each, workers) for each in range(workers)])
        given, coming = turns[: self._skipped], turns[self._skipped :]
        # A DataLoader asks worker 0 first, so after a resume that one takes the part of the one whose turn it is.
        part = (number + (coming[0] if coming else 0)) % workers
        mine = self._indices(self._rank, part, workers)
        for index in itertools.islice(mine, given.count(part) * self._data.batch_size, None):
            yield self._dataset[index]

    def _turns(self, samples: Sequence[int]) -> list[int]:
        """Which worker gives each batch: they take turns, and one without more is passed over."""
        size = self._data.batch_size
        batches = [n // size if self._data.uneven == "drop" else -(-n // size) for n in samples]
        turns = sorted((turn, worker) for worker, count in enumerate(batches) for turn in range(count))
        return [worker for _, worker in turns]

    def _random(self) -> random.Random:
        """The same on every rank and worker, so that each knows what the others take."""
        return random.Random(self._seed * 1_000_003 + self._epoch)

    def _count(self, worker: int, workers: int) -> int:
        raise NotImplementedError

    def _indices(self, rank: int, worker: int, workers: int) -> Iterable[int]:
        raise NotImplementedError


class FrontStream(Stream):
    """Read from its front, by everybody: of each n samples, one for each of n readers."""

    def _indices(self, rank: int, worker: int, workers: int) -> Iterable[int]:
        # Worker 0 of each rank first: so the first batches of all ranks come from the front of the stream.
        return itertools.islice(self._shuffled(), worker * self._size + rank, None, workers * self._size)

    def _count(self, worker: int, workers: int) -> int:
        return len(range(worker * self._size + self._rank, len(self._dataset), workers * self._size))

    def _shuffled(self) -> Iterator[int]:
        """As well as a stream can be: the next is drawn from a buffer, and the one behind fills its place."""
        draw, buffer = self._random(), list[int]()
        for index in range(len(self._dataset)):
            if len(buffer) < SHUFFLED:
                buffer.append(index)
                continue
            place = draw.randrange(SHUFFLED)
            yield buffer[place]
            buffer[place] = index
        draw.shuffle(buffer)
        yield from buffer


class PieceStream(Stream):
    """Read in pieces, in another order in each epoch, each by one reader."""

    def __init__(self, dataset: Samples, data: Data, seed: int) -> None:
        super().__init__(dataset, data, seed)
        readers = self._size * max(1, data.workers)
        if readers > PIECES:
            raise TrainerError(f"data.strategy=sharded_iterable has {PIECES} pieces for {readers} readers")

    def _indices(self, rank: int, worker: int, workers: int) -> Iterable[int]:
        pieces = list(range(PIECES))
        self._random().shuffle(pieces)
        mine = pieces[worker * self._size + rank :: workers * self._size]
        return itertools.chain.from_iterable(self._piece(piece) for piece in mine)

    def _piece(self, number: int) -> range:
        total = len(self._dataset)
        return range(number * total // PIECES, (number + 1) * total // PIECES)

    def _count(self, worker: int, workers: int) -> int:
        return len(list(self._indices(self._rank, worker, workers)))


# --- Dispatched -----------------------------------------------------------------------------------------------


class Dispatcher:
    """Rank 0 loads the batch of all ranks and sends each its part; what is lacking weighs nothing."""

    def __init__(self, dataset: Samples, data: Data, train: bool, seed: int, device: torch.device) -> None:
        self._size, self._device = data.batch_size, device
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._loader = _whole(dataset, data, train, seed)
        # Parts of full batches, or parts of which some weigh nothing.
        self.even = train and data.uneven == "drop"
        # What the other ranks have to know before they can receive.
        self._forms = [(tensor.shape, tensor.dtype) for tensor in dataset[0]]

    def begin(self, epoch: int, batches: int = 0, samples: int = 0) -> None:
        """Go to a place in an epoch."""
        self._loader.begin(epoch, batches, samples)

    def __iter__(self) -> Iterator[Batch]:
        loaded = iter(self._loader) if self._rank == 0 else None
        for _ in range(len(self._loader.batches)):
            yield self._send(next(loaded) if loaded else None)

    def _send(self, batch: Batch | None) -> Batch:
        """This rank's part of a batch that rank 0 has."""
        mine = [
            torch.empty(self._size, *shape, dtype=dtype, device=self._device) for shape, dtype in self._forms
        ]
        for number, fill in enumerate((0, IGNORED)):
            dist.scatter(mine[number], self._parts(batch[number], fill) if batch else None, src=0)
        inputs, targets = mine
        return inputs, targets

    def _parts(self, whole: Tensor, fill: int) -> list[Tensor]:
        """One part for each rank, all of the same size; every n-th sample, as a sampler would give them."""
        lacking = self._size * self._ranks - len(whole)
        filled = torch.cat([whole, whole.new_full((lacking, *whole.shape[1:]), fill)]).to(self._device)
        return [filled[rank :: self._ranks].contiguous() for rank in range(self._ranks)]


def _whole(dataset: Samples, data: Data, train: bool, seed: int) -> Loader:
    """What a single process would load, in batches for all ranks together."""
    cut = train and data.uneven == "drop"
    sampler = Share(dataset, shuffle=train, seed=seed, cut=cut, num_replicas=1, rank=0)
    whole = dataclasses.replace(data, batch_size=data.batch_size * dist.get_world_size())
    return Loader(dataset, sampler, whole, seed)
