"""A training that is killed again and again ends with the same bits as one that never was.

Each training is killed at several points, one life after the other, and goes on from the newest checkpoint that is
whole. The one that is not killed keeps every checkpoint, so each that is found can be compared as soon as it is there.
"""

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sample_trainer.bundled import FOLDER, module
from tests.support.forked import Ran, run_forked

pytestmark = pytest.mark.slow

files = module("checkpoint_files")

DIES = Path(__file__).with_name("dies.py")
EPOCHS, STEPS = 2, 6
LINES, LINES_OF_SAVES = 14_000, 400  # that a rank runs in three steps, at least
COMMON = (
    f"train.epochs={EPOCHS}",
    f"train.steps={STEPS}",
    "model.dropout=0.1",  # so that the weights tell of the random numbers too
    "data.batch_size=2",
    "data.context=16",
    "optimizer.schedule=cosine",
    "checkpoint.every=1",
    "evaluation.every=2",
)


@dataclass(frozen=True)
class Death:
    """Where a rank dies."""

    rank: int
    where: str
    number: int


NEVER = Death(-1, "line", 0)


@dataclass(frozen=True)
class Training:
    """One that is killed at some points."""

    nproc: int
    keys: Sequence[str]
    deaths: Sequence[Death]
    """One for each life but the last."""


def deaths(seed: int, nproc: int) -> list[Death]:
    """Five: three anywhere, one at a chosen moment of a save, one anywhere in a save; none more than 3 steps away."""
    chance = random.Random(seed)
    anywhere = [Death(chance.randrange(nproc), "line", chance.randrange(1, LINES)) for _ in range(3)]
    moment = Death(0, ("rename", "named")[seed % 2], chance.randrange(1, 4))
    found = [*anywhere, moment, Death(0, "save", chance.randrange(1, LINES_OF_SAVES))]
    chance.shuffle(found)
    return found


TRAININGS = {
    "plain": Training(2, (), deaths(1, 2)),
    "accumulation": Training(2, ("train.accumulation=3", "data.uneven=pad"), deaths(2, 2)[:3]),
    "workers": Training(2, ("data.workers=2", "data.uneven=pad"), deaths(3, 2)[2:]),
    "three ranks": Training(3, ("optimizer.name=sgd",), deaths(4, 3)[:3]),
    "bfloat16": Training(2, ("train.precision=bfloat16", "evaluation.keep_best=true"), deaths(6, 2)[:1]),
}


def live(training: Training, place: Path, name: str, death: Death, keep: int) -> Ran:
    """One life of it, to its end or to its death."""
    keys = (
        *COMMON,
        *training.keys,
        f"run.folder={place}",
        "checkpoint.resume=true",
        f"checkpoint.keep={keep}",
    )
    where = (
        str(death.rank),
        death.where,
        str(death.number),
        str(place.parent / f"{place.name}-order-{name}"),
    )
    return run_forked(
        DIES,
        place.parent / name,
        *where,
        str(FOLDER / "trainer.py"),
        *keys,
        nproc=training.nproc,
        record=False,
    )


def orders(place: Path, name: str, nproc: int) -> list[list[str]]:
    """The batches that each rank trained on."""
    written = [place.parent / f"{place.name}-order-{name}.{rank}" for rank in range(nproc)]
    return [one.read_text().splitlines() if one.exists() else [] for one in written]


def contents(checkpoint: Path) -> dict[str, str]:
    """The digests of its parts, after the file was looked at."""
    state = module("distributed").unpack(files.read(checkpoint))
    return {name: module("states").checksum(part) for name, part in state.items()}


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: hundreds of checkpoints would keep the disk busy, and SIGKILL takes nothing from its cache."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as made:
        yield Path(made)


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_that_is_killed_ends_with_the_same_bits(name, folder):
    training = TRAININGS[name]
    never = folder / "never"
    ran = live(training, never, "life", NEVER, keep=1000)
    assert set(ran.statuses) == {0}, ran.errors
    expected = {files.step_of(one): contents(one) for one in files.complete(never / "checkpoints")}
    order = orders(never, "life", training.nproc)
    batches = len(order[0]) // (EPOCHS * STEPS)
    assert list(expected) == list(range(1, EPOCHS * STEPS + 1))

    killed, newest = folder / "killed", 0
    for number, death in enumerate([*training.deaths, NEVER]):
        ran = live(training, killed, f"life{number}", death, keep=2)
        if death is NEVER:
            assert set(ran.statuses) == {0}, ran.errors
        else:
            assert ran.statuses[death.rank] == -9, ran.errors
        for rank, taken in enumerate(orders(killed, f"life{number}", training.nproc)):
            begin = newest * batches
            assert taken == order[rank][begin : begin + len(taken)]
        whole = files.complete(killed / "checkpoints")
        for one in whole:
            assert contents(one) == expected[files.step_of(one)], one
        if whole:
            assert files.step_of(whole[-1]) >= newest
            newest = files.step_of(whole[-1])
    assert newest == EPOCHS * STEPS
    assert not list((killed / "checkpoints").glob("*.part"))
