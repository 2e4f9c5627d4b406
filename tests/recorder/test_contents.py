"""What a dataset holds is told by one fingerprint, equal on ranks that hold the same."""

import random

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from ddpdoctor.recorder import contents
from ddpdoctor.recorder.lengths import Lengths


class Holds(Dataset):
    def __init__(self, **held):
        self.__dict__.update(held)

    def __len__(self):
        return 100


class Reads(Holds):
    """Its samples are made of two attributes, through a method and a property; it notes what it has read."""

    @property
    def labels(self):
        return self.kept

    def _row(self, index):
        return self.tokens[index : index + 4]

    def __getitem__(self, index):
        self.noted.append(index)
        self.last = index
        return [self._row(index) for _ in range(2)], self.labels[index]


def loaded(dataset, index):
    return dataset.mine[index]


class GivesItself(Holds):
    def __getitem__(self, index):
        return loaded(self, index)


class ByName(Holds):
    def __getitem__(self, index):
        return getattr(self, "left" if index % 2 else "right")[index]


class Around(Dataset):
    def __init__(self, another):
        self.another, self.never_read = another, TensorDataset(torch.rand(10))

    def __len__(self):
        return len(self.another)

    def __getitem__(self, index):
        return self.another[index]


class Transformed(Dataset):
    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)


def content(dataset):
    return contents.content(dataset, torch, Lengths())


def paths(root, seed=None):
    found = [f"{root}/{number % 7}/{number}.png" for number in range(100)]
    if seed is not None:
        random.Random(seed).shuffle(found)
    return found


def test_files_in_another_order_differ_and_in_another_folder_do_not():
    assert content(Holds(files=paths("/a"))) == content(Holds(files=paths("/scratch/rank1")))
    assert content(Holds(files=paths("/a"))) != content(Holds(files=paths("/a", 1)))
    pairs = [[(path, 0) for path in found] for found in (paths("/a"), paths("/b"), paths("/a", 1))]
    first, elsewhere, shuffled = (content(Holds(samples=one)) for one in pairs)
    assert first == elsewhere != shuffled


def test_values_drawn_by_each_rank_differ():
    def drawn(seed):
        torch.manual_seed(seed)
        numbers = random.Random(seed)
        yield TensorDataset(torch.rand(100, 3), torch.rand(100))
        yield Holds(anything=torch.rand(100))
        yield Holds(anything=[numbers.random() for _ in range(100)])
        yield Holds(anything=[(torch.rand(2), 1) for _ in range(100)])
        yield Holds(anything=[torch.rand(2) for _ in range(100)])
        yield Holds(anything=[{"text": str(numbers.random())} for _ in range(100)])
        yield ConcatDataset([TensorDataset(torch.rand(3)), TensorDataset(torch.rand(3))])

    for one, same, other in zip(*map(list, (drawn(1), drawn(1), drawn(2))), strict=True):
        assert content(one) == content(same) is not None
        assert content(one) != content(other)


def reads(kind=Reads, **changes):
    held = {"tokens": torch.arange(300), "kept": list(range(100)), "noted": [], "mine": list(range(100))}
    return content(kind(**(held | changes)))


def test_an_attribute_that_no_sample_is_made_of_tells_nothing():
    """Ranks train on the same samples, though each keeps a list of its own."""
    assert reads() == reads(mine=list(range(100, 200))) is not None
    assert reads() == reads(noted=[3, 1, 2], samples=list(range(100, 200)), data=torch.rand(100))


def test_whatever_samples_are_made_of_tells():
    assert reads() != reads(tokens=torch.arange(1, 301))
    assert reads() != reads(kept=[*range(99), 0])


@pytest.mark.parametrize("kind", [GivesItself, ByName])
def test_of_a_class_that_may_read_anything_all_that_is_as_long_tells(kind):
    assert reads(kind) != reads(kind, mine=list(range(100, 200)))


def test_what_wraps_a_dataset_is_known_by_what_it_reads():
    data = TensorDataset(torch.rand(10))
    assert contents.innermost(Around(data), torch, Lengths())[0] is data


def test_classes_that_are_numbered_in_another_way_differ():
    one, other = {"cat": 0, "dog": 1, "eel": 2}, {"dog": 0, "cat": 1, "eel": 2}
    assert reads(tokens=one) == reads(tokens=dict(reversed(one.items()))) != reads(tokens=other)
    files = [(path, number % 3) for number, path in enumerate(paths("/a"))]
    elsewhere = [(path, number % 3) for number, path in enumerate(paths("/scratch/rank1"))]
    relabelled = [(path, (number + 1) % 3) for number, path in enumerate(paths("/a"))]
    assert (
        content(Holds(samples=files))
        == content(Holds(samples=elsewhere))
        != content(Holds(samples=relabelled))
    )


@pytest.mark.parametrize(
    "held", [{"rank": 0}, {"seed": 1, "size": 32}, {7: 0, 3: 1}, {"a": 0.0, "b": 1.0}, {}]
)
def test_settings_and_caches_of_each_rank_tell_nothing(held):
    assert reads(tokens=held) == reads(tokens={})


def test_where_objects_lie_in_memory_does_not_tell():
    assert content(Holds(anything=[object() for _ in range(100)])) is None
    one, other = (Holds(anything=[(object(), n) for n in range(100)]) for _ in range(2))
    assert content(one) == content(other)
    assert content(Holds(elsewhere=[1, 2, 3])) is None


def test_the_innermost_dataset_and_the_places_in_it():
    data = TensorDataset(torch.arange(10))
    nested = Transformed(Subset(Transformed(Subset(data, [9, 7, 5, 3])), torch.tensor([2, 0])))
    inner, places = contents.innermost(nested, torch, Lengths())
    assert inner is data
    assert list(places) == [5, 9]
    assert contents.innermost(data, torch, Lengths()) == (data, None)


class Indexed(list):
    def __getitem__(self, index):
        index = index % 4
        return index


class Retrying(list):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        if sample is None:
            index = 0
        return sample, index


class DrawsAnother(list):
    def __getitem__(self, index):
        if self:
            index = random.randrange(len(self))
        return super().__getitem__(index)


class Noise(list):
    def __getitem__(self, index):
        return random.random()


class InComprehension(list):
    def __getitem__(self, index):
        return [index + shift for shift in range(2)]


class InFunction(list):
    def __getitem__(self, index):
        return max(self, key=lambda sample: sample == index)


@pytest.mark.parametrize(
    ("kind", "ignored"),
    [
        (Indexed, False),
        (Retrying, False),
        (list, False),
        (InComprehension, False),
        (InFunction, False),
        (DrawsAnother, True),
        (Noise, True),
    ],
)
def test_a_dataset_that_takes_samples_of_its_own_choice(kind, ignored):
    assert contents.ignores_index(kind()) is ignored
