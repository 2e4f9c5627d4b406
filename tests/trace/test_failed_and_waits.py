"""Ranks that have failed and wait in a ``finally`` or an ``except``; and those that work on in there."""

import pytest

from ddpdoctor.blame.hang_snapshot import ActiveException, SampledProcess
from ddpdoctor.model import Source, Where
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.trace.recording import Recording
from tests.support.diagnosis import diagnosis_of
from tests.support.hangs import backward, collective, hung, process, script, snapshot
from tests.support.judging import only_finding
from tests.support.recordings import recording, replace

SCRIPT = """\
def train(n):
    for step in range(n):
        forward()
        update()
        all_reduce()

def in_finally():
    try:
        train(5)
    finally:
        barrier()

def in_except():
    try:
        train(5)
    except ValueError:
        barrier()

def starts_fresh():
    try:
        load()
    except ValueError:
        train(5)

def trains_again():
    try:
        train(5)
    except ValueError:
        train(2)

def repeats_a_step():
    for step in range(5):
        try:
            update()
        except ValueError:
            all_reduce()

def has_no_checkpoint():
    try:
        load()
    except ValueError:
        barrier()
"""
UPDATE = (4, "train")
_INNER = (3, "train")


@pytest.fixture
def file(tmp_path):
    written = tmp_path / "train.py"
    written.write_text(SCRIPT)
    return str(written)


def trained(rank: int, file: str, update: tuple[int, str]) -> Recording:
    """A rank that has taken four steps."""
    right = recording(rank, 3)
    at = Where(file, *update)
    steps = tuple(
        replace(one, optimizer_steps=tuple(replace(own, at=at) for own in one.optimizer_steps))
        for one in right.steps
    )
    joined = GroupEvent("init", 0.0, at, "gloo", rank, 3)
    return replace(right, steps=steps, trailing=None, exit=None, passes=(), groups=(joined,))


def code_of(
    file, function, tried, now, *inside, came=(), update=UPDATE, message="no such key", stack=None, on=(1,)
):
    """The verdict where a rank, or some, handle an exception while the others wait in backward."""
    tried_at, holder = script(tried, function, file), script(now, function, file)
    frames = (tried_at, *(script(*one, file) for one in came))
    handles = ActiveException("ValueError", message, frames, tried_at, holder)
    below = tuple(script(*one, file) for one in inside)
    state = (holder, *below, *(stack or collective("barrier", 1))[1:])
    places: dict[int, SampledProcess] = {rank: process(rank, backward(3)) for rank in range(3)}
    for rank in on:
        places[rank] = process(rank, state, handles=handles)
    own = {rank: trained(rank, file, update) for rank in range(3)}
    return diagnosis_of(hung(snapshot(places), own))


def test_who_fails_and_waits_in_its_finally(file):
    found = code_of(file, "in_finally", 9, 11, came=[_INNER])
    assert (found.code, found.culprits, found.waiting) == ("DD304", (1,), (0, 2))
    assert found.where == Where(file, 3, "train")
    assert found.headline == (
        f"rank 1 failed with ValueError 'no such key' and waits in barrier at {file}:11, while ranks 0, 2 wait in "
        "backward at train.py:3"
    )


def test_who_leaves_its_training_and_waits_in_its_except(file):
    assert code_of(file, "in_except", 15, 17, came=[_INNER]).code == "DD304"


def test_several_ranks(file):
    found = code_of(file, "in_finally", 9, 11, came=[_INNER], on=(0, 1))
    assert (found.code, found.culprits) == ("DD304", (0, 1))


@pytest.mark.parametrize(
    "how",
    [
        {"place": ("in_finally", 9, 11), "on": (0, 1, 2)},
        {"place": ("in_finally", 9, 11), "message": "Connection closed by peer [127.0.0.1]"},
        {"place": ("in_finally", 9, 11), "stack": backward(3)},
        {"place": ("in_finally", 9, 12)},
        {"place": ("starts_fresh", 21, 23, (5, "train"))},
        {"place": ("trains_again", 27, 29, (5, "train")), "came": [_INNER]},
        {"place": ("repeats_a_step", 34, 36), "update": (34, "repeats_a_step")},
        {"place": ("has_no_checkpoint", 40, 42)},
    ],
    ids=[
        "all of them",
        "the victim of a peer",
        "in a backward",
        "the file is another",
        "without a checkpoint",
        "out of memory",
        "a step is tried again",
        "outside of training",
    ],
)
def test_an_exception_that_is_not_known_to_be_the_cause(file, how):
    found = code_of(file, *how["place"], **{name: value for name, value in how.items() if name != "place"})
    assert found is None or found.code != "DD304"


def test_the_check_tells_it(file):
    handles = ActiveException(
        "ValueError", "", (script(9, "in_finally", file),), *(script(n, "in_finally", file) for n in (9, 11))
    )
    stack = (script(11, "in_finally", file), *collective("barrier", 11)[1:])
    trace = hung(
        snapshot({0: backward(3), 1: process(1, stack, handles=handles)}), {0: trained(0, file, UPDATE)}
    )
    found = only_finding("DD304", Source.RUN, trace)
    assert found.ranks == (1,)
    assert found.headline.startswith("rank 1 failed with ValueError and waits in barrier")
