"""Attributes of the script's objects are read without running its code."""

from types import SimpleNamespace

import pytest

from ddpdoctor.recorder.lengths import attribute


class Asked(AssertionError):
    """Code of the script ran."""


class Sampler:
    seed = 3

    def __init__(self):
        self.rank, self.epoch = 1, 2
        vars(self)["total"] = 7

    def __getattr__(self, name):
        raise Asked

    def sampler(self):
        raise Asked

    @property
    def total(self):
        raise Asked


class Slots:
    __slots__ = ("rank",)

    def __init__(self):
        self.rank = 1


class Hidden:
    @property
    def __dict__(self):
        raise Asked


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (Sampler, "rank", 1),
        (Sampler, "seed", 3),
        (Sampler, "sampler", None),
        (Sampler, "total", None),
        (Sampler, "missing", None),
        (lambda: Sampler, "seed", 3),
        (Slots, "rank", None),
        (Hidden, "rank", None),
        (lambda: SimpleNamespace(rank=1), "rank", 1),
        (lambda: None, "rank", None),
        (lambda: 5, "real", None),
    ],
)
def test_an_attribute_is_read_as_it_lies_there(make, name, value):
    assert attribute(make(), name) == value
