"""The order of a whole pass is foreseen exactly, and without a trace in any random stream."""

import random
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from ddpdoctor.recorder import samplers
from ddpdoctor.recorder.lengths import Lengths

DATA = TensorDataset(torch.arange(37))


class ShufflesInPlace(Sampler):
    def __init__(self):
        self.numbers, self.passes = list(range(37)), 0

    def __iter__(self):
        self.passes += 1
        random.shuffle(self.numbers)
        for number in self.numbers:
            if torch.rand(()) < 0.9:
                yield number


class OwnGenerator(Sampler):
    def __init__(self):
        self.generator = torch.Generator().manual_seed(5)

    def __iter__(self):
        yield from self._order()

    def _order(self):
        return torch.randperm(37, generator=self.generator).tolist()


class ListsItsBatches(Sampler):
    def __iter__(self):
        return iter([[1, 2, 3], [4], [5, 6]])


class Endless(Sampler):
    def __iter__(self):
        while True:
            yield from range(37)


class Synchronises(Sampler):
    def __iter__(self):
        self._agree()
        yield from range(37)

    def _agree(self):
        torch.distributed.barrier()


class HoldsSomethingUnknown(Sampler):
    def __init__(self):
        self.counter = type("Counter", (), {})()

    def __iter__(self):
        self.counter.seen = True
        yield from range(37)


class Wraps(Sampler):
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        for number in self.sampler:
            yield 36 - number


class Drawn(Dataset):
    """What a sampler draws, as the dataset of a DistributedSampler: so does PyTorch Lightning."""

    def __init__(self, sampler):
        self._sampler, self._indices = sampler, None

    def __len__(self):
        return len(self._sampler)

    def __getitem__(self, index):
        self._indices = self._indices or list(self._sampler)
        return self._indices[index]


class Divides(DistributedSampler):
    def __init__(self, sampler):
        super().__init__(Drawn(sampler), 3, 1, shuffle=False)

    def __iter__(self):
        self.dataset._indices = None
        return (self.dataset[index] for index in super().__iter__())


GENERATOR = torch.Generator()
"""Of the samplers that are given one; its state counts as a random stream of the script."""

FORESEEN = {
    "lists its batches": lambda: {"batch_sampler": ListsItsBatches()},
    "sequential": lambda: {"batch_size": 5},
    "random": lambda: {"batch_size": 5, "shuffle": True},
    "random, drop_last": lambda: {"batch_size": 5, "shuffle": True, "drop_last": True},
    "random, own generator": lambda: {"sampler": RandomSampler(DATA, generator=torch.Generator())},
    "replacement": lambda: {"sampler": RandomSampler(DATA, replacement=True, num_samples=70)},
    "subset": lambda: {"sampler": SubsetRandomSampler([3, 5, 7, 11])},
    "weighted": lambda: {"sampler": WeightedRandomSampler(torch.ones(37), 20)},
    "distributed": lambda: {"sampler": DistributedSampler(DATA, 3, 1)},
    "no batches": lambda: {"batch_size": None, "sampler": DistributedSampler(DATA, 3, 1)},
    "a list": lambda: {"sampler": [4, 2, 8]},
    "batches by hand": lambda: {"batch_sampler": BatchSampler(SequentialSampler(DATA), 4, False)},
    "batches in a list": lambda: {"batch_sampler": [[1, 2], [3]]},
}
UNFORESEEN = {
    "wraps another": lambda: {"sampler": Wraps(ShufflesInPlace()), "batch_size": 2},
    "own class with a generator": lambda: {"sampler": OwnGenerator(), "batch_size": 3},
    "shuffles in place": lambda: {"sampler": ShufflesInPlace()},
    "an adapted sampler": lambda: {"sampler": Divides(RandomSampler(DATA, generator=GENERATOR))},
    "endless": lambda: {"sampler": Endless()},
    "a collective in a method of its own": lambda: {"sampler": Synchronises()},
    "state outside": lambda: {"sampler": HoldsSomethingUnknown()},
}


def states():
    return torch.get_rng_state().tolist(), random.getstate(), GENERATOR.get_state().tolist()


def seed():
    torch.manual_seed(3)
    random.seed(3)
    GENERATOR.manual_seed(3)


@pytest.mark.parametrize("make", FORESEEN.values(), ids=FORESEEN)
def test_what_is_foreseen_is_what_is_drawn(make):
    seed()
    plain = DataLoader(DATA, **make())
    plain_batches = [list(iter(plain._index_sampler)) for _ in range(2)]
    plain_states = states()

    seed()
    loader = DataLoader(DATA, **make())
    for expected in plain_batches:
        iterator = type("Iterator", (), {})()
        iterator._index_sampler, iterator._dataset = loader._index_sampler, DATA
        iterator._sampler_iter = iter(loader._index_sampler)
        before = states()
        indices, count = samplers.foresee(torch, iterator, Lengths())
        assert states() == before
        drawn = list(iterator._sampler_iter)
        assert drawn == expected
        assert count == len(drawn)
        flat = [one for batch in drawn for one in (batch if isinstance(batch, list) else [batch])]
        assert list(indices) == flat
    assert states() == plain_states


@pytest.mark.parametrize("make", UNFORESEEN.values(), ids=UNFORESEEN)
def test_what_may_not_be_asked_in_advance_is_left_alone(make):
    loader = DataLoader(DATA, **make())
    iterator = type("Iterator", (), {})()
    iterator._index_sampler, iterator._dataset = loader._index_sampler, DATA
    iterator._sampler_iter = iter(loader._index_sampler)
    before = states()
    with pytest.raises(samplers.Unforeseen):
        samplers.foresee(torch, iterator, Lengths())
    assert states() == before
    assert not hasattr(getattr(loader.sampler, "counter", None), "seen")


def test_a_generator_that_was_given_as_a_sampler_is_not_used_up():
    loader = DataLoader(DATA, sampler=(number for number in range(5)), batch_size=2)
    iterator = type("Iterator", (), {})()
    iterator._index_sampler, iterator._dataset = loader._index_sampler, DATA
    iterator._sampler_iter = iter(loader._index_sampler)
    with pytest.raises(samplers.Unforeseen):
        samplers.foresee(torch, iterator, Lengths())
    assert list(iterator._sampler_iter) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(("cpu", "clock", "known"), [(0.1, 5.0, True), (2.0, 5.0, False), (0.1, 20.0, False)])
def test_a_busy_machine_gets_the_time_that_a_long_order_takes(monkeypatch, cpu, clock, known):
    cpus, clocks = iter((0.0, cpu)), iter((0.0, clock))
    monkeypatch.setattr(
        samplers, "time", SimpleNamespace(thread_time=cpus.__next__, monotonic=clocks.__next__)
    )
    batches = ([number] for number in range(300))
    if known:
        assert samplers._flatten(batches)[1] == 300
    else:
        with pytest.raises(samplers.Unforeseen):
            samplers._flatten(batches)
