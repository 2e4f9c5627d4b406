"""Which generators of its own a dataset draws from in a DataLoader worker."""

import random
from types import SimpleNamespace
from typing import Any

from ddpdoctor.recorder import randomness
from ddpdoctor.recorder.events.data import Worker
from ddpdoctor.recorder.patches.workers import _Worker

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
        states = {"python": "global"}
        worker._look_at_own(event, states)
        event.drew = tuple(name for name, state in states.items() if event.seeds.get(name) != state)
    return event


def test_generators_are_found_in_what_a_dataset_holds() -> None:
    assert sorted(randomness.own_states(TORCH, Samples())) == ["Samples.order", "Samples.transform.rng"]
    assert randomness.own_states(TORCH, None) == {}


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
