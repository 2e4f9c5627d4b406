"""DD609 on made records: twenty runs in which something changed, and twenty noisy ones in which nothing did."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import pytest

from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Finding, Passed, Source
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.training import Progress
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording
from tests.support.judging import ask, check
from tests.support.recordings import recorded, replace, where

DRIFTS = check("DD609")
MB = 1 << 20
Value = Callable[[int, random.Random], float]
"""Of the step, of 100,000."""
STEPS = 100_000


def noisy(level: float, share: float = 0.03) -> Value:
    return lambda step, draw: level * draw.gauss(1, share)


def then(before: Value, at: int, after: Value) -> Value:
    return lambda step, draw: (after if step >= at else before)(step, draw)


def rising(level: float, at: int, by: float, share: float = 0.03) -> Value:
    """From a step on, by so much until the last."""
    return lambda step, draw: (level + by * max(0, step - at) / (STEPS - at)) * draw.gauss(1, share)


def times(value: Value, factor: Callable[[int, random.Random], float]) -> Value:
    return lambda step, draw: value(step, draw) * factor(step, draw)


def told(rank: int, *, pace: Value, data: Value, memory: Value, loss: Value) -> tuple[Progress, ...]:
    """What a rank tells: every second at first, later at one percent of the time so far."""
    draw, events = random.Random(rank), []
    step, time, waited, due = 0, 1000.0, 0.0, 1001.0
    while step < STEPS:
        step += 10
        waited += 10 * (own := data(step, draw))
        time += 10 * (pace(step, draw) + own)
        if time >= due:
            due = time + max(1.0, 0.01 * (time - 1000))
            events.append(Progress(step, step, 0, time, waited, int(memory(step, draw)), loss(step, draw)))
    return tuple(events)


def run(
    *, ranks: int = 2, saves: Value | None = None, **series: Value | Mapping[int, Value]
) -> list[Finding] | Passed:
    usual: dict[str, Value] = {
        "pace": noisy(0.01),
        "data": noisy(0.0005, 0.3),
        "memory": noisy(900 * MB, 0.005),
        "loss": lambda step, draw: (2 * math.exp(-step / 40_000) + 0.5) * draw.gauss(1, 0.1),
    }

    def change(rank: int, one: Recording) -> Recording:
        own = {name: series.get(name, value) for name, value in usual.items()}
        mine = {
            name: value.get(rank, usual[name]) if isinstance(value, Mapping) else value
            for name, value in own.items()
        }
        events = told(rank, **mine)  # type: ignore[arg-type]
        draw = random.Random(9)
        written = [
            Save("/job/last.pt", where(70), it.time, it.time + saves(it.steps, draw))
            for it in (events[::4] if saves and rank == 0 else ())
        ]
        return replace(one, record=Record.made(*events, *written))

    return ask(DRIFTS.code, Source.RUN, recorded(ranks, change=change))  # type: ignore[return-value]


FULL = noisy(0.010)
CHANGED = {
    "slower by a fifth in the middle": ({"pace": then(FULL, 50_000, noisy(0.012))}, "training slowed"),
    "slower by a half, late": ({"pace": then(FULL, 75_000, noisy(0.015))}, "training slowed"),
    "slower by a half, early": ({"pace": then(FULL, 25_000, noisy(0.015))}, "training slowed"),
    "ever slower": ({"pace": rising(0.01, 30_000, 0.01)}, "training slowed"),
    "slower in noise of 15 %": (
        {"pace": then(noisy(0.01, 0.15), 50_000, noisy(0.02, 0.15))},
        "training slowed",
    ),
    "slower beside pauses": (
        {"pace": times(then(FULL, 50_000, noisy(0.014)), lambda step, _: 300 if step % 5000 == 0 else 1)},
        "training slowed",
    ),
    "a loader that slows on every rank": (
        {"data": then(noisy(0.0005), 60_000, noisy(0.006))},
        "0-1 wait longer",
    ),
    "a loader that slows more and more": (
        {"data": rising(0.001, 40_000, 0.02)},
        "ranks 0-1 wait longer for data",
    ),
    "a loader that slows on one rank": (
        {
            "data": {1: then(noisy(0.0005), 60_000, noisy(0.006))},
            "pace": {0: then(FULL, 60_000, noisy(0.0155))},
        },
        "rank 1 waits longer for data",
    ),
    "memory that grows on one rank": (
        {"memory": {1: rising(900 * MB, 20_000, 600 * MB, 0.005)}},
        "memory of rank 1",
    ),
    "memory that grows from the start": (
        {"memory": rising(900 * MB, 0, 900 * MB, 0.005)},
        "memory of ranks 0-1",
    ),
    "memory that grows late": (
        {"memory": {0: rising(900 * MB, 70_000, 900 * MB, 0.005)}},
        "memory of rank 0",
    ),
    "memory that grows beside collections": (
        {"memory": {1: lambda step, draw: (900 + 800 * step / STEPS + 60 * (step % 3000) / 3000) * MB}},
        "memory of rank 1",
    ),
    "a loss that leaves the others'": (
        {"ranks": 4, "loss": {2: lambda step, draw: (1.5 if step > 50_000 else 1.0) * draw.gauss(1, 0.1)}},
        "the loss of rank 2",
    ),
    "a loss of two that parts": ({"loss": {1: rising(1.2, 40_000, 2.0, 0.1)}}, "the loss of rank 1"),
    "a loss that parts while all fall": (
        {
            "ranks": 3,
            "loss": {
                0: lambda step, draw: (
                    (2 * math.exp(-step / 40_000) + 0.5) * draw.gauss(2 if step > 60_000 else 1, 0.1)
                )
            },
        },
        "the loss of rank 0",
    ),
    "checkpoints that take twice as long": (
        {"saves": then(noisy(2.0, 0.1), 50_000, noisy(4.0, 0.1))},
        "checkpoints",
    ),
    "checkpoints that take ever longer": ({"saves": rising(2.0, 30_000, 6.0, 0.1)}, "checkpoints of rank 0"),
    "checkpoints in noise": (
        {"saves": then(noisy(2.0, 0.2), 40_000, noisy(6.0, 0.2))},
        "checkpoints of rank 0",
    ),
    "slower for many ranks": ({"ranks": 8, "pace": then(FULL, 50_000, noisy(0.013))}, "training slowed"),
}
FIRST_EPOCH = 30_000


def once(low: int, high: int, factor: float) -> Callable[[int, random.Random], float]:
    return lambda step, _: factor if low <= step < high else 1.0


NOISY: dict[str, dict[str, object]] = {
    "nothing but noise": {},
    "much noise": {"pace": noisy(0.01, 0.4)},
    "a heavy tail": {"pace": lambda step, draw: 0.008 + 0.002 * draw.paretovariate(1.5)},
    "a pause of an hour": {"pace": times(FULL, once(60_000, 60_010, 36_000))},
    "pauses between epochs": {"pace": times(FULL, lambda step, _: 300 if step % 5000 == 0 else 1)},
    "evaluations that are rare": {"pace": times(FULL, lambda step, _: 2000 if step % 20_000 == 0 else 1)},
    "slow for a while": {"pace": times(FULL, once(40_000, 60_000, 1.5))},
    "slow at the beginning": {"pace": times(FULL, once(0, 20_000, 3.0))},
    "days and nights": {"pace": times(FULL, lambda step, _: 1 + 0.2 * math.sin(step / 8000))},
    "slower by a twentieth": {"pace": then(FULL, 50_000, noisy(0.0105))},
    "a faster loader": {"data": then(noisy(0.005), 40_000, noisy(0.001))},
    "a loader of bursts": {"data": lambda step, draw: 0.05 if step % 80 == 0 else 0.0},
    "memory that fills up a cache": {
        "memory": lambda step, draw: (900 + 900 * min(1, step / FIRST_EPOCH)) * MB
    },
    "memory that levels off": {
        "memory": lambda step, draw: (900 + 900 * (1 - math.exp(-step / 15_000))) * MB
    },
    "memory in steps": {"memory": then(noisy(900 * MB, 0.01), 30_000, noisy(1400 * MB, 0.01))},
    "memory up and down": {"memory": lambda step, draw: (900 + 500 * (step % 20_000) / 20_000) * MB},
    "memory that grows a little": {"memory": rising(900 * MB, 0, 40 * MB, 0.002)},
    "noisy losses": {"loss": lambda step, draw: draw.lognormvariate(0, 0.8)},
    "a rank whose data are always harder": {"loss": {0: noisy(1.0, 0.1), 1: noisy(1.6, 0.1)}},
    "checkpoints on a busy disk": {"saves": lambda step, draw: draw.lognormvariate(0.5, 1.0)},
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_changed_is_found(name: str) -> None:
    series, words = CHANGED[name]
    findings = run(**series)  # type: ignore[arg-type]
    assert isinstance(findings, list), findings
    (finding,) = findings
    assert words in finding.headline


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_silent(name: str) -> None:
    found = run(**NOISY[name])  # type: ignore[arg-type]
    assert isinstance(found, Passed), [finding.headline for finding in found]


def test_there_are_twenty_of_each() -> None:
    assert len(CHANGED) == len(NOISY) == 20


def test_the_step_where_it_began_and_its_interval() -> None:
    (finding,) = run(pace=then(FULL, 50_000, noisy(0.014)))  # type: ignore[misc]
    assert finding.headline == "training slowed from 10.5 ms to 14.5 ms a step since step 50,060"
    assert "with 95 % confidence" in finding.why


def test_a_short_run_is_not_judged() -> None:
    few = tuple(Progress(step, step, 0, float(step)) for step in range(1, 20))
    short = recorded(change=lambda rank, one: replace(one, record=Record.made(*few)))
    with pytest.raises(NotMeasured, match="too short"):
        DRIFTS.examine_run(short)
