"""DD217 and DD218: gradients that are clipped too early."""

import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.updates import Clip
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import backward, each_step, forward


def clipped(*, backwards=1, norm=lambda rank: 3.0, micro=1, **changes):
    def change(rank, own):
        clip = Clip(own.time + 0.8, where(55), norm(rank), 1.0, keys=2, backwards=backwards)
        times = [own.time + 0.1 * n for n in range(micro)]
        return replace(
            own,
            forwards=tuple(forward(t) for t in times),
            backwards=tuple(
                backward(t + 0.05, *([0] if n == micro - 1 else [])) for n, t in enumerate(times)
            ),
            clips=(replace(clip, **changes),),
        )

    return each_step(change)


def test_gradients_at_the_scale_of_the_scaler():
    finding = only_finding("DD217", Source.RUN, clipped(stage="READY", scale=65536.0))
    assert (
        finding.headline == "gradients are clipped at 65536 times their size, before unscale_, on ranks 0-1"
    )
    assert finding.where == where(55)
    assert finding.evidence[0].text == "norm 3, limit 1, scale 65536"


@pytest.mark.parametrize(("stage", "scale"), [("UNSCALED", 65536.0), ("READY", 1.0)])
def test_gradients_at_their_own_scale(stage, scale):
    passed("DD217", Source.RUN, clipped(stage=stage, scale=scale))


def test_no_scaler_is_skipped():
    assert (
        skipped("DD217", Source.RUN, clipped()).reason == "nothing was clipped while a GradScaler was in use"
    )


def test_each_rank_cuts_its_own_part():
    finding = only_finding("DD218", Source.RUN, clipped(norm=lambda rank: 2.0 + rank, micro=2))
    assert finding.headline == (
        "gradients are clipped before they are averaged: norms from 2 to 3 on ranks 0-1 in one step"
    )
    assert finding.where == where(55)
    assert finding.evidence[0].text == "step 0, after 1 backward: norm 2"


def test_gradients_that_the_script_averages_after_clipping():
    finding = only_finding("DD218", Source.RUN, clipped(norm=lambda rank: 2.0 + rank))
    assert finding.evidence[1].text == "step 0, after 1 backward: norm 3"


@pytest.mark.parametrize(
    "changes",
    [
        {"micro": 2, "backwards": 2, "norm": lambda rank: 2.0 + rank, "keys": 9},
        {"micro": 2, "norm": lambda rank: 2.0 + 1e-7 * rank},
        {"micro": 2, "norm": lambda rank: float("nan")},
    ],
    ids=["other gradients too", "rounding", "not a number"],
)
def test_norms_that_prove_nothing(changes):
    passed("DD218", Source.RUN, clipped(**changes))


def test_nothing_clipped_is_skipped():
    assert skipped("DD218", Source.RUN, recorded()).reason == "no gradient norm was clipped"
