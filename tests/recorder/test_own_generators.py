"""Which generators of its own a dataset draws from in a DataLoader worker."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.recorder import randomness
from ddpdoctor.recorder.events.data import Worker
from ddpdoctor.recorder.patches.loaders import _Worker

TORCH: Any = SimpleNamespace(Generator=SimpleNamespace)


class Jitter:
    def __init__(self) -> None:
        self.rng = random.Random(99)


class Samples:
    def __init__(self) -> None:
        self.order, self.transform, self.files = random.Random(1), Jitter(), ["a", "b"]


def loaded(*batches: Any) -> Worker:
    """What a worker tells after these batches, each of which changes the dataset."""
    session: Any = SimpleNamespace(torch=TORCH)
    worker, event = _Worker(session), Worker(0, {"python": "global"})
    worker.dataset = Samples()
    for batch in batches:
        batch(worker.dataset)
        event.drew = ()
        worker._look_at_generators(event)
    return event


def test_generators_are_found_in_what_a_dataset_holds() -> None:
    assert sorted(randomness.own_states(TORCH, Samples())) == ["Samples.order", "Samples.transform.rng"]
    assert randomness.own_states(TORCH, None) == {}


class Lazy:
    @property
    def __class__(self) -> Any:
        raise AssertionError("its class was asked for")


def test_what_has_no_state_and_lazy_objects_are_left_alone() -> None:
    dataset = Samples()
    dataset.transform = Lazy()  # type: ignore[assignment]
    dataset.files = random.SystemRandom()  # type: ignore[assignment]
    assert sorted(randomness.own_states(TORCH, dataset)) == ["Samples.order"]


def test_a_wide_dataset_is_looked_at_in_part() -> None:
    dataset = Samples()
    for number in range(60):
        part = Samples()
        vars(part).update({f"part{number}": Jitter() for number in range(60)})
        setattr(dataset, f"part{number}", part)
    assert 2 < len(randomness.own_states(TORCH, dataset)) < 256


@pytest.mark.parametrize("kind", ["MT19937", "PCG64", "Philox"])
@pytest.mark.filterwarnings("error")
def test_generators_of_numpy(kind: str) -> None:
    numpy = pytest.importorskip("numpy")
    bits = getattr(numpy.random, kind)
    dataset = SimpleNamespace(old=numpy.random.RandomState(bits(1)), new=numpy.random.Generator(bits(1)))
    before = randomness.own_states(TORCH, dataset)
    dataset.old.rand(), dataset.new.random()
    after = randomness.own_states(TORCH, dataset)
    assert all(before[name] != after[name] for name in ("SimpleNamespace.old", "SimpleNamespace.new"))


def test_a_generator_that_each_batch_draws_from() -> None:
    def draw(dataset: Samples) -> None:
        dataset.transform.rng.random()

    event = loaded(draw, draw, draw)
    assert event.drew == ("Samples.transform.rng",)
    assert event.seeds == loaded(draw, draw).seeds


def test_one_that_shuffles_once_is_no_augmentation() -> None:
    assert loaded(lambda dataset: dataset.order.random(), lambda dataset: None).drew == ()


def test_one_that_is_seeded_for_each_sample_differs_between_workers() -> None:
    def seeding(index: int) -> Any:
        return lambda dataset: dataset.order.seed(index)

    assert loaded(seeding(0), seeding(2)).seeds != loaded(seeding(1), seeding(3)).seeds
