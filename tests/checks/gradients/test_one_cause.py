"""Weights that differ are the end of many diseases; the cause is what is told."""

import pytest

from ddpdoctor import registry
from ddpdoctor.judge import judge, merge
from ddpdoctor.model import Level, Source
from tests.support.recordings import recorded, replace
from tests.support.training import backward, diverging, each_step, forward, with_update


def around(rank, own):
    return diverging(
        rank, own, forwards=(forward(own.time, around=True),), backwards=(backward(own.time + 0.5),)
    )


def paused(rank, own):
    return diverging(
        rank, own, forwards=(forward(own.time, synced=False),), backwards=(backward(own.time + 0.5),)
    )


def twice(rank, own):
    t = own.time
    return diverging(
        rank,
        own,
        forwards=(forward(t), forward(t + 0.1)),
        backwards=(backward(t + 0.3, 0), backward(t + 0.4)),
    )


def deaf(rank, own):
    return diverging(rank, own, forwards=(forward(own.time),), backwards=(backward(own.time + 0.5),))


def unequal_rates(rank, own):
    equal = dict.fromkeys(("weight", "bias"), f"gradient {own.index}")
    rates = ({"lr": 0.1 * (rank + 1)},)
    return with_update(diverging(rank, own), gradients=equal, hyperparameters=rates)


def bare(rank, one):
    return replace(one, wrappers=(), steps=tuple(diverging(rank, own) for own in one.steps))


@pytest.mark.parametrize(
    ("code", "trace"),
    [
        ("DD201", each_step(around)),
        ("DD202", each_step(paused)),
        ("DD205", each_step(deaf)),
        ("DD207", each_step(twice)),
        ("DD208", each_step(unequal_rates)),
        ("DD227", recorded(3, bare)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_only_the_cause_is_told(code, trace):
    broken: list[str] = []
    findings = merge(judge(Source.RUN, registry.select(Source.RUN, ["DD2"]), trace, broken.append)).findings
    assert not broken
    assert [one.code for one in findings if one.level is not Level.INFO] == [code]


def test_a_right_run_has_no_finding():
    broken: list[str] = []
    findings = merge(
        judge(Source.RUN, registry.select(Source.RUN, ["DD2"]), recorded(3), broken.append)
    ).findings
    assert not broken
    assert findings == ()
