"""The conditions of a function, read from its code, and what they look at."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from ddpdoctor.recorder.branches import branches_of, values_at
from ddpdoctor.recorder.events.process import RETURNED

TORCH = SimpleNamespace(Tensor=type("Tensor", (), {}))


def train(loss: float, settings: Any, batches: Any) -> int:
    for batch in batches:
        if loss > settings.best and batch["mask"]:
            continue
        elif settings.lora_rank:
            loss += 1
        while loss > 5 and (not batch or settings.best):
            loss -= 1
    if loss:
        return 1
    return 2


def _line(number: int) -> int:
    return train.__code__.co_firstlineno + number


def test_where_conditions_lead() -> None:
    following = branches_of(train.__code__).next
    assert following[_line(1)] == (_line(2), _line(8))
    assert following[_line(2)] == (_line(3), _line(4))
    assert following[_line(4)] == (_line(5), _line(6))
    assert following[_line(6)] == (_line(1), _line(7))
    assert following[_line(8)] == (_line(9), _line(10))


def leaves(found: bool) -> None:
    if found:
        print(found)


def test_a_condition_may_end_its_function() -> None:
    first = leaves.__code__.co_firstlineno
    assert branches_of(leaves.__code__).next[first + 1] == (RETURNED, first + 2)


@pytest.mark.parametrize(
    ("settings", "batch", "values"),
    [
        (
            SimpleNamespace(best=0.3),
            {"mask": True},
            {"loss": 0.5, "settings.best": 0.3, "batch['mask']": True},
        ),
        (SimpleNamespace(best=None), {}, {"loss": 0.5, "settings.best": None}),
        (SimpleNamespace(best="x" * 200), [1], {"loss": 0.5, "settings.best": "x" * 80}),
        (SimpleNamespace(best=[1]), {"mask": object()}, {"loss": 0.5}),
        (SimpleNamespace(best=math.inf), None, {"loss": 0.5, "settings.best": math.inf, "batch": None}),
    ],
)
def test_plain_values_are_taken_and_nothing_else(settings: Any, batch: Any, values: dict[str, Any]) -> None:
    frame = SimpleNamespace(f_locals={"loss": 0.5, "settings": settings, "batch": batch}, f_globals={})
    assert values_at(TORCH, branches_of(train.__code__).paths[_line(2)], frame) == values


class Loud:
    """An object whose own code must not run."""

    best = 1

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)


def test_no_code_of_the_script_runs() -> None:
    loud = Loud()
    frame = SimpleNamespace(f_locals={"loss": loud, "settings": loud, "batch": loud}, f_globals={})
    assert values_at(TORCH, branches_of(train.__code__).paths[_line(2)], frame) == {}
