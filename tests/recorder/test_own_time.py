"""What the recorder takes in the thread that trains counts for no phase of the script's."""

import threading
import time
from collections.abc import Iterator
from threading import get_ident

import pytest

from ddpdoctor.recorder.patch import guarded, own_time

BURNT = 0.03
"""CPU seconds of each function here."""


@guarded
def work() -> None:
    """As long as the recorder may take."""
    until = time.thread_time() + BURNT
    while time.thread_time() < until:
        pass


@guarded
def work_that_fails() -> None:
    """A fault of ours."""
    work()
    raise ValueError


@guarded
def work_in_parts() -> None:
    """One of ours that calls others of ours."""
    work()
    work()


@pytest.fixture
def looked_at() -> Iterator[None]:
    """In this thread, as in a step that is written down in full."""
    own_time.thread = get_ident()
    yield
    own_time.thread = 0


@pytest.mark.parametrize(
    ("function", "times"),
    [(work, 1), (work_that_fails, 1), (work_in_parts, 2)],
    ids=["one", "failing", "nested"],
)
@pytest.mark.usefixtures("looked_at")
def test_it_counts_once(function: object, times: int) -> None:
    before, began = own_time.total(), time.thread_time()
    assert callable(function)
    function()
    passed = time.thread_time() - began
    assert times * BURNT <= own_time.total() - before <= passed


@pytest.mark.usefixtures("looked_at")
def test_in_another_thread_it_counts_not() -> None:
    before = own_time.total()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert own_time.total() == before


def test_in_steps_that_are_only_counted_it_counts_not() -> None:
    before = own_time.total()
    work()
    assert own_time.total() == before


@pytest.mark.usefixtures("looked_at")
def test_what_is_under_way_counts_so_far() -> None:
    before = own_time.total()
    so_far = []

    @guarded
    def begins_a_phase() -> None:
        work()
        so_far.append(own_time.total())

    begins_a_phase()
    assert so_far[0] - before >= BURNT
    assert own_time.total() >= so_far[0]
