"""The exception that a thread handles, as the heartbeat looks for it."""

import contextlib
import threading
from typing import Any

import pytest

from ddpdoctor.recorder.patches.background import handled


class Odd(Exception):
    """Its text is for the script alone to make."""

    def __str__(self) -> str:
        raise AssertionError


def seen() -> dict[str, Any] | None:
    return handled(threading.get_ident(), lambda file: file != __file__)


def fail(error: Exception) -> None:
    raise error


def in_except(error: Exception) -> Any:
    try:
        fail(error)
    except Exception:  # noqa: BLE001
        return seen()


def in_finally(error: Exception) -> Any:
    found: list[Any] = []
    with contextlib.suppress(Exception):
        try:
            fail(error)
        finally:
            found.append(seen())
    return found[0]


@contextlib.contextmanager
def looking(found: list[Any]) -> Any:
    try:
        yield
    finally:
        found.append(seen())


def in_a_generator(error: Exception) -> Any:
    found: list[Any] = []
    with contextlib.suppress(Exception), looking(found):
        fail(error)
    return found[0]


@pytest.mark.parametrize(
    ("inside", "name", "below"),
    [(in_except, "in_except", 1), (in_finally, "in_finally", 1), (in_a_generator, "looking", 2)],
)
def test_an_exception_under_way(inside, name, below):
    found = inside(RuntimeError("no such key\nand more"))
    assert (found["type"], found["message"]) == ("RuntimeError", "no such key")
    (tried, _, first), (holder, _, now) = found["tried"], found["holder"]
    assert (tried, holder) == (name, name)
    assert 0 < now - first <= 3
    assert (found["frames"][0][0], found["frames"][-1][0]) == (name, "fail")
    assert len(found["frames"]) == below + 1


def test_nothing_is_handled():
    with contextlib.suppress(KeyError):
        fail(KeyError("img"))
    assert seen() is None
    assert in_except(StopIteration()) is None


def test_another_threads():
    assert in_except(KeyError("img"))["message"] == "'img'"
    assert handled(0, lambda file: False) is None


def test_no_code_of_the_script_runs():
    assert in_except(Odd("bird", 3))["message"] == "bird"
