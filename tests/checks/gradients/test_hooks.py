"""DD228 and DD211 in a recorded run: what communication hooks, or scripts, made of the ranks' gradients."""

import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.recorder.events.updates import HookedGradient
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where

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
        return replace(one, wrappers=(wrapper,), record=Record.made(*gradients))

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
        hooked(lambda rank: times(2), factor=0.125),
        hooked(lambda rank: times(2), factor=None),
        hooked(lambda rank: OWN[rank]),
        hooked(lambda rank: (2.0, -2.0, 4.0)),
        hooked(lambda rank: (0.0, 0.0, 0.0)),
        hooked(lambda rank: times(float("nan"))),
        hooked(lambda rank: MEAN, given={0: (1.0, 1.0, 1.0), 1: (-1.0, -1.0, -1.0)}),
        hooked(lambda rank: times(2), given={0: MEAN, 1: MEAN}),
    ],
    ids=[
        "mean",
        "other",
        "divided",
        "scaled",
        "scaled more",
        "unknown",
        "noop",
        "compressed",
        "zero",
        "nan",
        "cancelled",
        "equal",
    ],
)
def test_what_is_right_or_cannot_be_told(trace):
    assert skipped("DD228", Source.RUN, trace).reason.startswith("no communication hook")


def by_hand(used, factor=1.0, **fields):
    """The same without a wrapper: the script made ``used`` of it between the backward and the update."""

    def change(rank, one):
        gradients = tuple(
            HookedGradient(step, None, "weight", OWN[rank], used, used, factor) for step in range(2)
        )
        summing = Collective(0.8, where(44), "all_reduce", shape=(3,), gradient_of="weight")
        first, *rest = one.steps
        steps = (replace(first, collectives=(summing,)), *rest)
        return replace(one, wrappers=(), steps=steps, record=Record.made(*gradients))

    return recorded(2, change)


def test_a_sum_by_hand_that_nobody_divides():
    finding = only_finding("DD211", Source.RUN, by_hand(times(2)))
    assert (
        finding.headline
        == "the script sums gradients over 2 ranks and does not divide them: 2 times too large"
    )
    assert finding.where == where(44)
    assert [one.text for one in finding.evidence] == [
        "1, -2, 4 of weight after the backward",
        "3, 0, -2 of weight after the backward",
        "4, -2, 2 at the update, 2 times the mean",
    ]


@pytest.mark.parametrize("trace", [by_hand(MEAN), by_hand(times(2), factor=0.5)])
def test_a_sum_by_hand_that_is_divided(trace):
    passed("DD211", Source.RUN, trace)


def test_stages_of_a_pipeline_may_share_a_name():
    def change(rank, recording):
        values = OWN[rank][: 3 - rank]
        gradient = HookedGradient(0, None, "body.weight", values, values, values, 1.0)
        return replace(recording, wrappers=(), record=Record.made(gradient))

    assert skipped("DD211", Source.RUN, recorded(2, change)).reason.startswith("nothing was wrapped")


def test_a_loss_that_is_no_mean_may_be_summed():
    assert skipped("DD211", Source.RUN, by_hand(times(2), factor=None)).reason.startswith(
        "nothing was wrapped"
    )
