"""Which ranks reached a line, and at which condition they took different branches; from records as plain data."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ddpdoctor.model import Evidence, Where
from ddpdoctor.recorder.events.process import RETURNED, Called, Code, Decided, Reached
from ddpdoctor.trace.lines import JobLines
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording

TRAIN = Code(0, "train.py", "train", 1, ((2, 3, 9), (4, 5, 6), (6, 7, 8)))
"""Line 2 is a loop that ends at 9; 4 guards 5; 6 guards the break in 7, and 8 updates."""
HELPER = Code(1, "train.py", "helper", 20, ((21, 22, RETURNED),))
CODES = (TRAIN, HELPER)


def _recording(
    steps: Sequence[Mapping[int, set[int]]],
    order: Sequence[tuple[int, int]] = ((0, 2), (0, 4), (0, 6)),
    decided: Sequence[Decided] = (),
    **last: Any,
) -> Recording:
    """One that reached these lines of each code in each step."""
    events: list[Any] = [*CODES, Called(1, Where("train.py", 5, "train"))]
    before: dict[int, set[int]] = {}
    for number, lines in enumerate(steps):
        now = {code: set(lines.get(code, ())) for code in (0, 1)}
        more = tuple(_row(code, now[code] - before.get(code, set())) for code in now)
        fewer = tuple(_row(code, before.get(code, set()) - now[code]) for code in now)
        is_last = number == len(steps) - 1
        events.append(
            Reached(
                number, number, more, fewer, None if number else tuple(order), **(last if is_last else {})
            )
        )
        before = now
    return Recording(record=Record.made(*events, *decided))


def _row(code: int, lines: set[int]) -> tuple[int, ...]:
    return (code, *(line for each in sorted(lines) for line in (each, each)))


def _job(*recordings: Recording) -> JobLines:
    job = JobLines.of(dict(enumerate(recordings)))
    assert job is not None
    return job


def _at(line: int) -> Where:
    return Where("train.py", line, "train")


ALL = {2, 3, 4, 6, 8}


def test_ranks_and_steps_of_a_line() -> None:
    job = _job(_recording([{0: ALL | {5}}, {0: ALL}]), _recording([{0: ALL}, {0: ALL | {5}}]))
    assert job.ranks_reaching(_at(8)) == {0, 1}
    assert (job.steps_reaching(0, _at(5)), job.steps_reaching(1, _at(5))) == ((0,), (1,))
    assert job.ranks_reaching(_at(9)) == set()
    assert job.reached() == {"train.py": frozenset(ALL | {5})}


def test_lines_are_not_known_where_a_rank_has_none() -> None:
    assert JobLines.of({0: _recording([{0: ALL}]), 1: Recording()}) is None
    assert JobLines.of({0: _recording([{0: ALL}])}) is None


def test_a_line_that_one_rank_reaches_each_time_is_kept_from_the_others() -> None:
    job = _job(_recording([{0: ALL | {5}}] * 3), _recording([{0: ALL}] * 3))
    guard = job.guard(_at(5))
    assert guard is not None
    assert (guard[0].at, guard[1]) == (_at(4), True)


def test_a_condition_on_data_that_one_rank_alone_met_is_no_guard() -> None:
    job = _job(_recording([{0: ALL | {5}}, {0: ALL}]), _recording([{0: ALL}, {0: ALL}]))
    guard = job.guard(_at(5))
    assert guard is not None
    assert guard[1] is False


def test_no_rank_is_kept_from_a_line_that_it_did_not_come_to() -> None:
    """Rank 1 hangs in line 3: it has not decided in 4."""
    job = _job(_recording([{0: ALL | {5}}]), _recording([{0: {2, 3}}]))
    assert job.guard(_at(5)) is None
    assert job.partings(0) == []


def test_the_way_out_of_a_loop_with_its_values() -> None:
    stays, leaves = ALL, {2, 3, 4, 6, 7, 9}
    told = [Decided(0, 6, 0, {"best": 0.3, "loss": 0.5}), Decided(0, 6, 1, {"loss": 0.31})]
    job = _job(
        _recording(
            [{0: stays | {5}}, {0: stays | {5}}], decided=[Decided(0, 6, 0, {"best": 0.3, "loss": 0.2})]
        ),
        _recording([{0: stays}, {0: leaves}], decided=told),
    )
    parting = job.way_out([1])
    assert parting is not None
    assert (parting.at, parting.to, parting.ranks, parting.others, parting.step) == (_at(6), 7, (1,), (0,), 1)
    assert parting.evidence() == (Evidence("loss = 0.2", (0,)), Evidence("loss = 0.31", (1,)))


def test_a_guard_on_the_rank_is_not_the_way_out() -> None:
    job = _job(_recording([{0: ALL | {5}}, {0: ALL | {5}}]), _recording([{0: ALL}, {0: ALL}]))
    assert job.way_out([0]) is None


@pytest.mark.parametrize("partial", [False, True])
def test_a_step_that_may_lack_lines_says_nothing_of_branches(partial: bool) -> None:
    job = _job(_recording([{0: ALL | {5}}]), _recording([{0: ALL}], partial=partial))
    assert bool(job.partings(0)) is not partial


def test_a_branch_may_leave_the_function() -> None:
    entered = {0: ALL | {5}, 1: {21, 22}}
    job = _job(_recording([entered]), _recording([{0: ALL | {5}, 1: {21, RETURNED}}]))
    assert [(it.at.line, it.to, it.ranks) for it in job.partings(0)] == [(21, 22, (0,)), (21, RETURNED, (1,))]
    assert job.leading_calls(Where("train.py", 22, "helper")) == {_at(5)}
