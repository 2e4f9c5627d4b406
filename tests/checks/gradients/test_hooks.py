"""DD228 in a recorded run: what communication hooks made of the ranks' gradients."""

from dataclasses import replace

import pytest

from ddpdoctor.model import Source
from ddpdoctor.trace.hooked import HookedGradient
from tests.support.judging import only_finding, skipped
from tests.support.recordings import recorded, where

OWN = {0: (1.0, -2.0, 4.0), 1: (3.0, 0.0, -2.0)}
MEAN = (2.0, -1.0, 1.0)


def times(factor):
    return tuple(factor * value for value in MEAN)


def hooked(got, used=None, factor=1.0, given=OWN):
    """Each of two updates has a gradient of which a hook made ``got(rank)``."""

    def change(rank, one):
        wrapper = replace(one.wrappers[0], hook="summed", hooked_at=where(33))
        made = got(rank)
        gradients = tuple(
            HookedGradient(step, 0, "weight", given[rank], made, used or made, factor) for step in range(2)
        )
        return replace(one, wrappers=(wrapper,), hooked=gradients)

    return recorded(2, change)


@pytest.mark.parametrize(("factor", "text"), [(2, "2 times"), (0.5, "1/2 of")])
def test_a_hook_that_does_not_average(factor, text):
    finding = only_finding("DD228", Source.RUN, hooked(lambda rank: times(factor)))
    assert finding.headline == f"the communication hook summed makes gradients {text} the mean of 2 ranks"
    assert finding.where == where(33)
    assert [(one.text, one.ranks) for one in finding.evidence[:2]] == [
        ("1, -2, 4 of weight, given to the hook", (0,)),
        ("3, 0, -2 of weight, given to the hook", (1,)),
    ]


def test_clipping_takes_nothing_back():
    only_finding("DD228", Source.RUN, hooked(lambda rank: times(2), used=times(0.17)))


@pytest.mark.parametrize(
    "trace",
    [
        hooked(lambda rank: MEAN),
        hooked(lambda rank: times(1.5)),
        hooked(lambda rank: times(2), used=MEAN),
        hooked(lambda rank: times(2), factor=0.5),
        hooked(lambda rank: times(2), factor=None),
        hooked(lambda rank: OWN[rank]),
        hooked(lambda rank: (2.0, -2.0, 4.0)),
        hooked(lambda rank: (0.0, 0.0, 0.0)),
        hooked(lambda rank: times(float("nan"))),
        hooked(lambda rank: MEAN, given={0: (1.0, 1.0, 1.0), 1: (-1.0, -1.0, -1.0)}),
    ],
    ids=["mean", "other", "divided", "scaled", "unknown", "noop", "compressed", "zero", "nan", "cancelled"],
)
def test_what_is_right_or_cannot_be_told(trace):
    assert skipped("DD228", Source.RUN, trace).reason.startswith("only --exact")
