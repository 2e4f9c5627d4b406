"""DD602, DD603, DD604 and DD606 on recorded runs."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Level, Passed, Skipped, Source
from ddpdoctor.recorder.events.files import LogWriter
from ddpdoctor.recorder.events.training import Backward, Forward
from ddpdoctor.trace import Trace
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording
from tests.support.judging import ask, check
from tests.support.recordings import recorded, replace, step, where
from tests.support.training import with_update

OFTEN, UNUSED, INPUT, LOGGING = map(check, ("DD602", "DD603", "DD604", "DD606"))


def timed(phases: Callable[[int, int], Mapping[str, float]], steps: int = 20, **fields: Any) -> Trace:
    """A run with these seconds in the phases of each step; a step takes 0.1 s where nothing else is said."""

    def change(rank: int, one: Recording) -> Recording:
        own = tuple(step(i, phases={"total": 0.1, **phases(rank, i)}) for i in range(steps))
        return replace(one, steps=own, step_count=steps)

    return recorded(change=change, **fields)


def test_a_right_run_passes() -> None:
    trace = timed(lambda rank, i: {"forward": 0.03, "backward": 0.05, "data": 0.001})
    for which in (OFTEN, INPUT):
        assert isinstance(ask(which.code, Source.RUN, trace), Passed), which.code


def test_every_rank_waits_for_data() -> None:
    (finding,) = ask(INPUT.code, Source.RUN, timed(lambda rank, i: {"data": 0.07}))
    assert finding.headline == "ranks 0-1 wait for data in 70% or more of each training step"
    assert finding.where == where(45)


def test_short_waits_are_of_short_steps() -> None:
    assert isinstance(
        ask(INPUT.code, Source.RUN, timed(lambda rank, i: {"total": 0.01, "data": 0.009})), Passed
    )


def accumulated(backwards: tuple[Backward, ...], steps: int = 4, closure: bool = False) -> Trace:
    own = tuple(with_update(step(i, backwards=backwards), closure=closure) for i in range(steps))
    return recorded(change=lambda rank, one: replace(one, steps=own))


def test_every_micro_batch_is_averaged() -> None:
    (finding,) = ask(
        OFTEN.code, Source.RUN, accumulated(tuple(Backward(i / 4, where(49), (0,)) for i in range(4)))
    )
    assert finding.headline == "gradients are all-reduced 4 times for each update on ranks 0-1"
    assert finding.where == where(49)


@pytest.mark.parametrize(
    "backwards",
    [
        (Backward(0.1, where(49), ()), Backward(0.2, where(49), (0,))),
        (Backward(0.1, where(49), (0,)), Backward(0.2, where(53), (0,))),
        (Backward(0.1, where(49), (0,)), Backward(0.2, where(49), (1,))),
    ],
    ids=["no_sync", "two losses on two lines", "two wrappers"],
)
def test_several_backwards_that_are_right(backwards: tuple[Backward, ...]) -> None:
    assert isinstance(ask(OFTEN.code, Source.RUN, accumulated(backwards)), Passed)


def test_an_optimizer_that_computes_the_loss_anew_needs_each_average() -> None:
    own = tuple(Backward(i / 4, where(49), (0,)) for i in range(4))
    with pytest.raises(NotMeasured, match="except inside of an optimizer"):
        OFTEN.examine_run(accumulated(own, closure=True))


def looked(unused: Callable[[int, int], int | None], flag: bool = True, steps: int = 8) -> Trace:
    """A run that looked for unused parameters: the bytes that DDP counted, by rank and step."""

    def change(rank: int, one: Recording) -> Recording:
        wrapper = replace(one.wrappers[0], flags={"find_unused_parameters": flag})
        own = (
            step(i, forwards=(Forward(i + 0.2, where(48), 0, unused=unused(rank, i)),)) for i in range(steps)
        )
        return replace(one, wrappers=(wrapper,), steps=tuple(own))

    return recorded(change=change)


def test_nothing_is_ever_unused() -> None:
    (finding,) = ask(UNUSED.code, Source.RUN, looked(lambda rank, i: 0))
    assert finding.headline == "find_unused_parameters=True found no unused parameter in 8 training steps"
    assert (finding.level, finding.where) == (Level.WARN, where(30))


def test_one_rank_left_something_unused_once() -> None:
    assert isinstance(
        ask(UNUSED.code, Source.RUN, looked(lambda rank, i: 80 * ((rank, i) == (1, 6)))), Passed
    )


def test_too_few_steps_tell_of_unused_parameters() -> None:
    with pytest.raises(NotMeasured):
        UNUSED.examine_run(looked(lambda rank, i: 0 if i < 4 else None))


def test_nobody_looks_for_unused_parameters() -> None:
    assert isinstance(ask(UNUSED.code, Source.RUN, looked(lambda rank, i: None, flag=False)), Skipped)


def logging(target: str, kind: str = "tensorboard") -> Trace:
    return recorded(
        change=lambda rank, one: replace(
            one, record=Record.made(LogWriter(kind, target.format(rank=rank), where(12), 1.0))
        )
    )


def test_every_rank_opens_one_log() -> None:
    (finding,) = ask(LOGGING.code, Source.RUN, logging("/jobs/runs"))
    assert finding.headline == "ranks 0-1 each opened tensorboard for '/jobs/runs'"
    assert finding.where == where(12)


def test_every_rank_logs_to_one_file() -> None:
    (finding,) = ask(LOGGING.code, Source.RUN, logging("/jobs/run.log", "logging"))
    assert finding.headline == "ranks 0-1 each log to '/jobs/run.log'"
    assert "FileHandler" in finding.fix
    assert "SummaryWriter" not in finding.fix


def test_each_rank_opens_its_own_log() -> None:
    assert isinstance(ask(LOGGING.code, Source.RUN, logging("/jobs/runs/{rank}")), Passed)


def test_nobody_logs() -> None:
    assert isinstance(ask(LOGGING.code, Source.RUN, recorded()), Skipped)
