"""DD305, DD308 and DD310 on recorded runs: ranks that leave early, decide alone, or keep their process group."""

from pathlib import Path

import pytest

from ddpdoctor.blame.frames import Failure
from ddpdoctor.model import Level, Passed, Where
from ddpdoctor.recorder.events.process import Code, Exit, GroupEvent, Reached
from ddpdoctor.recorder.events.training import Backward
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.gloo import forgive
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording
from tests.support.ends_of_run import (
    ALONE,
    DECIDED,
    KEPT,
    LEFT,
    MISMATCH,
    call,
    judged,
    lost,
    one_more_step,
    run,
    stopped,
)
from tests.support.judging import check
from tests.support.recordings import recorded, replace, where


def in_the_last_step(one: Recording) -> Recording:
    """The same rank, before its last step was done; it lost its peer in the backward."""
    *steps, last = one.steps
    trailing = TrainingStep(3, 3.0, forwards=last.forwards, backwards=(Backward(3.5, where(49)),))
    return lost(replace(one, steps=tuple(steps), step_count=3, trailing=trailing), 49)


def test_a_peer_that_had_finished_the_last_collective_is_not_to_blame():
    trace = run({1: in_the_last_step, 2: in_the_last_step}, world_size=3)
    trace = replace(trace, ranks=forgive(trace.ranks))
    assert trace.broken is None
    (finding,) = LEFT.examine_run(trace)
    assert (finding.level, finding.ranks) == (Level.INFO, (1, 2))
    assert finding.headline == "ranks 1-2 lost a peer in the last collective, which that peer had finished"
    assert isinstance(check("DD304").examine_run(trace), Passed)


@pytest.mark.parametrize(
    "change", ["another line", "one step more", "a step without record", "a collective more"]
)
def test_a_peer_that_left_before_the_end_stays_to_blame(change):
    def altered(one: Recording) -> Recording:
        found = in_the_last_step(one)
        if change == "another line":
            return lost(found, 60)
        if change == "one step more":
            return replace(found, step_count=4)
        if change == "a step without record":
            return replace(found, step_count=4, trailing=None)
        return replace(found, collectives=(call("barrier", 49),))

    trace = run({1: altered})
    assert forgive(trace.ranks) == trace.ranks


@pytest.mark.parametrize(("calls", "gone"), [(1, (1, 2)), (2, (1,))])
def test_who_leaves_the_same_way_a_little_later_is_to_blame_too(calls: int, gone: tuple[int, ...]) -> None:
    met = tuple(call("all_reduce", 55, number) for number in range(2))
    after = tuple(call("all_reduce", 55, number) for number in range(calls))
    trace = run(
        {
            0: lambda one: lost(replace(one, collectives=met), 60),
            1: lambda one: replace(one, collectives=met[:1], exit=Exit("returned", 19.0)),
            2: lambda one: replace(one, collectives=after, exit=Exit("returned", 21.0)),
        },
        world_size=3,
    )
    (finding,) = LEFT.examine_run(trace)
    assert finding.ranks == gone


def test_who_has_destroyed_the_group_has_left_before_its_script_ends() -> None:
    """The others fail when the connections close, which may be before the last line of the script."""
    destroyed = GroupEvent("destroy", 19.9, where(70))

    def gone(one: Recording) -> Recording:
        groups = (*(event for event in one.groups if event.action != "destroy"), destroyed)
        return replace(one, steps=(), step_count=0, groups=groups, exit=Exit("returned", 20.5))

    (finding,) = LEFT.examine_run(run({0: lambda one: lost(one, 49), 1: gone}))
    assert finding.ranks == (1,)


@pytest.mark.parametrize("steps", [0, 4])
def test_an_error_that_the_script_caught_after_a_rank_had_left(steps: int) -> None:
    def alone(one: Recording) -> Recording:
        begun = replace(one_more_step(), index=steps)
        return replace(one, steps=one.steps[:steps], step_count=steps, trailing=begun)

    def gone(one: Recording) -> Recording:
        destroyed = GroupEvent("destroy", 9.0, where(70))
        kept = (event for event in one.groups if event.action != "destroy")
        return replace(
            one,
            steps=one.steps[:steps],
            step_count=steps,
            groups=(*kept, destroyed),
            exit=Exit("returned", 9.5),
        )

    (finding,) = LEFT.examine_run(recorded(change=lambda rank, one: gone(one) if rank else alone(one)))
    assert (finding.level, finding.ranks) == (Level.FAIL, (1,))
    assert "whose exception the script caught" in finding.headline


SWALLOWS = """\
def main():
    try:
        for x in loader:
            loss.backward()
    except RuntimeError as {error}:
        print({error})
"""


@pytest.mark.parametrize("error", ["error", "patience", "rank"])
@pytest.mark.parametrize(
    ("came_to", "line", "same"), [((1, 6), 5, True), ((1, 4), 4, False), ((), 4, False)], ids=str
)
def test_the_except_to_which_a_rank_came_before_it_left(
    tmp_path: Path, error: str, came_to: tuple[int, ...], line: int, same: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SWALLOWS.format(error=error))
    at = Where(str(script), 4, "main")

    def change(rank: int, one: Recording) -> Recording:
        begun = one_more_step()
        failed = replace(begun, index=4, backwards=tuple(replace(it, at=at) for it in begun.backwards))
        reached = Reached(0, 4, ((0, 1, 6) if rank == 0 else (0, *came_to),), (), ()) if came_to else None
        lines = [Code(0, str(script), "main", 1, ()), reached] if reached else []
        rest = {} if rank else {"trailing": failed}
        destroyed = (GroupEvent("destroy", 9.0, None),) if rank else ()
        return replace(
            one,
            script=str(script),
            record=Record.made(*lines),
            steps=one.steps[:4],
            step_count=4,
            groups=(*(it for it in one.groups if it.action != "destroy"), *destroyed),
            exit=Exit("returned", 9.5),
            **rest,
        )

    (finding,) = LEFT.examine_run(recorded(change=change))
    assert (finding.ranks, finding.where.line) == ((1,), line)
    assert ("came to the same except" in finding.why) is same
    assert any("the others failed" in it.text for it in finding.evidence) is same


def test_a_right_run_passes() -> None:
    calls = tuple(call("all_reduce", 55, number, 10.0 + number) for number in range(3))
    trace = recorded(change=lambda rank, one: replace(one, collectives=calls))
    for which in (MISMATCH, ALONE, LEFT, DECIDED, KEPT):
        assert isinstance(which.examine_run(trace), Passed), which.code


def test_a_rank_that_failed_by_itself_parted_from_nobody() -> None:
    trace = run({0: lambda one: lost(replace(one, collectives=(call("barrier", 60),)), 60)})
    own = replace(
        trace.ranks[1], failure=Failure("ValueError", "no label", "", 1.0), exit_code=1, finished=False
    )
    broken = replace(trace, ranks=(trace.ranks[0], own))
    for which in (MISMATCH, ALONE, DECIDED, LEFT):
        assert judged(which, broken) is None or which is LEFT
    assert judged(LEFT, broken) is None


def test_a_rank_that_returned_early() -> None:
    def left(one: Recording) -> Recording:
        return replace(one, groups=one.groups[:1], exit=Exit("returned", 15.0))

    trace = run(
        {0: lambda one: lost(replace(one, collectives=(call("barrier", 60),)), 60), 1: left, 2: left}, 3
    )
    (finding,) = LEFT.examine_run(trace)
    assert finding.headline == "ranks 1-2 ended with status 0 while rank 0 still waited for them"
    assert (finding.ranks, finding.where) == ((1, 2), where(60))
    assert judged(ALONE, trace) is None
    assert judged(DECIDED, trace) is None


def test_a_rank_that_left_out_a_backward() -> None:
    def left_out(one: Recording) -> Recording:
        first, *later = one.steps
        forwards = (replace(first.forwards[0], at=where(47)), *first.forwards)
        return replace(one, steps=(replace(first, forwards=forwards), *later), exit=Exit("returned", 19.0))

    trace = run({0: lambda one: lost(replace(one, trailing=one_more_step()), 49), 1: left_out})
    (finding,) = DECIDED.examine_run(trace)
    assert finding.headline == "rank 1 skipped the backward of training step 0, which rank 0 ran"
    assert (finding.ranks, finding.where) == ((1,), where(47))


def test_a_rank_that_left_out_a_backward_and_aborted_in_a_collective_behind_the_loop() -> None:
    """Who is sent more than it expected writes nothing more, and stands in no backward."""

    def left_out(one: Recording) -> Recording:
        first, *later = one.steps
        steps = (replace(first, forwards=(*first.forwards, *first.forwards)), *later)
        return stopped(replace(one, steps=steps, collectives=(call("all_reduce", 55, ended=False),)))

    trace = run({0: lambda one: lost(replace(one, trailing=one_more_step()), 49), 1: left_out})
    said = "terminate called after throwing an instance of 'gloo::EnforceNotMet'"
    aborted = replace(trace.ranks[1], exit_code=-6, finished=False, output=(said,))
    (finding,) = DECIDED.examine_run(replace(trace, ranks=(trace.ranks[0], aborted)))
    assert finding.headline == "rank 1 skipped the backward of training step 0, which rank 0 ran"


def test_a_rank_that_left_out_a_step_though_it_drew_as_many_batches() -> None:
    def behind(one: Recording) -> Recording:
        return replace(one, steps=one.steps[:-1], step_count=len(one.steps) - 1)

    trace = run({0: lambda one: lost(one, 49), 1: behind})
    (finding,) = DECIDED.examine_run(trace)
    assert finding.headline == "rank 1 skipped 1 training step, which rank 0 made"
    assert (finding.ranks, finding.where) == ((1,), where(45))


def test_a_rank_that_exits_inside_the_loop(tmp_path: Path) -> None:
    trace = run(
        {
            0: lambda one: lost(replace(one, trailing=one_more_step()), 49),
            1: lambda one: replace(one, groups=one.groups[:1], exit=Exit("exit", 15.0, 0, where(47))),
        }
    )
    (finding,) = LEFT.examine_run(trace)
    assert (finding.ranks, finding.where) == ((1,), where(47))
    assert judged(DECIDED, trace) is None


def test_a_late_step_without_record_is_known_by_the_line_that_failed() -> None:
    def bare(one: Recording) -> Recording:
        return replace(one, passes=(), loaders=(), step_count=40)

    trace = run({0: lambda one: lost(bare(one), 49), 1: bare})
    (finding,) = DECIDED.examine_run(trace)
    assert finding.headline == "rank 1 left the training loop after 40 steps, while rank 0 went on"


def test_a_loop_that_a_rank_left() -> None:
    def left(one: Recording) -> Recording:
        last = replace(one.passes[-1], ended="left", drawn=1)
        return replace(one, passes=(one.passes[0], last))

    trace = run({0: lambda one: lost(one, 49), 1: left})
    (finding,) = DECIDED.examine_run(trace)
    assert finding.headline == "rank 1 left the training loop after 4 steps, while rank 0 went on"
    assert finding.why.startswith("Every rank had data for more steps")
    assert (finding.ranks, finding.where) == ((1,), where(45))


def test_a_loop_without_a_loader_that_a_rank_left_may_have_had_fewer_batches() -> None:
    def left(one: Recording) -> Recording:
        return replace(one, steps=one.steps[:3], step_count=3)

    def bare(one: Recording) -> Recording:
        return replace(one, passes=(), loaders=())

    (finding,) = DECIDED.examine_run(
        run({0: lambda one: lost(bare(one), 49), 1: lambda one: bare(left(one))})
    )
    assert finding.why.startswith("The batches come from no DataLoader.")
    assert finding.fix.startswith("number = torch.tensor(len(batches))")


def test_under_join_each_rank_leaves_the_loop_where_its_batches_end() -> None:
    def joined(one: Recording) -> Recording:
        return replace(one, steps=tuple(replace(step, joined=True) for step in one.steps))

    def left(one: Recording) -> Recording:
        last = replace(one.passes[-1], ended="left", drawn=1)
        return joined(replace(one, passes=(one.passes[0], last)))

    trace = run({0: lambda one: joined(lost(one, 49)), 1: left})
    assert judged(DECIDED, trace) is None


def test_ranks_that_wait_behind_their_loop(tmp_path: Path) -> None:
    """The file shows that the barrier stands behind the loop, so the rank that waits there has left it."""
    script = tmp_path / "train.py"
    script.write_text("def main():\n    for i in range(9):\n        step()\n    barrier()\n")
    update, barrier = (Where(str(script), line, "main") for line in (3, 4))

    def moved(one: Recording) -> Recording:
        steps = tuple(
            replace(step, optimizer_steps=tuple(replace(taken, at=update) for taken in step.optimizer_steps))
            for step in one.steps
        )
        return replace(one, steps=steps, passes=())

    trace = run(
        {
            0: lambda one: stopped(
                replace(moved(one), collectives=(replace(call("barrier", 4, ended=False), at=barrier),))
            ),
            1: lambda one: stopped(replace(moved(one), trailing=one_more_step())),
        },
        timed_out=True,
    )
    (finding,) = DECIDED.examine_run(trace)
    assert (finding.ranks, finding.where) == ((0,), update)


def test_nobody_destroyed_the_group() -> None:
    trace = recorded(change=lambda rank, one: replace(one, groups=one.groups[:1]))
    finding = KEPT.examine_run(trace)
    assert finding.headline == "ranks 0-1 ended without destroy_process_group"
    assert (finding.level, finding.where) == (Level.INFO, where(20))


def test_a_hard_exit_and_a_cut_are_no_sign_of_a_forgotten_group() -> None:
    for how in ("os._exit", "shortened"):
        trace = recorded(
            change=lambda rank, one, how=how: replace(one, groups=one.groups[:1], exit=Exit(how, 9.0, 0))
        )
        assert judged(KEPT, trace) is None


def test_a_group_of_some_ranks_is_not_the_default_group() -> None:
    new = GroupEvent("new_group", 1.0, where(21), rank=0, size=1, ranks=(0,))
    trace = recorded(change=lambda rank, one: replace(one, groups=(*one.groups, new)))
    assert isinstance(KEPT.examine_run(trace), Passed)


@pytest.mark.parametrize(
    ("guard", "leaves", "exchanged", "told"),
    [
        ("if torch.isnan(loss):", "continue", False, True),
        ("if not loss.isfinite():", "continue", False, True),
        ("if torch.isnan(loss):", "continue", True, False),
        ("if loss is None:", "continue", False, False),
        ("if isnan(loss):", "continue", False, False),  # a function that nobody here knows
        ("if torch.isnan(loss):", "break", False, False),
        ("if loss.item() > 100:", "continue", False, True),
        ("if loss.item() > 100:", "continue", True, False),
        ("if loss > limit:", "continue", False, False),  # of which no value was recorded
        ("if loss.item() > 100 and strict:", "continue", False, False),
        ("if x > 100:", "continue", False, False),
    ],
)
def test_a_backward_that_is_left_out_by_a_ranks_own_loss(
    tmp_path: Path, guard: str, leaves: str, exchanged: bool, told: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"import torch\nfor x in loader:\n    loss = model(x)\n    {guard}\n        {leaves}\n    loss.backward()\n"
    )

    def change(rank: int, one: Recording) -> Recording:
        def written(step: TrainingStep) -> TrainingStep:
            forward = replace(step.forwards[0], at=Where(str(script), 3, "<module>"))
            backward = replace(
                step.backwards[0], at=Where(str(script), 6, "<module>"), value=1.0 + rank, reduced=(0,)
            )
            between = call("all_reduce", 3, time=(forward.time + backward.time) / 2)
            calls = (between,) if exchanged else ()
            return replace(step, forwards=(forward,), backwards=(backward,), collectives=calls)

        return replace(one, steps=tuple(map(written, one.steps)))

    judgement = DECIDED.examine_run(recorded(change=change))
    if told:
        (finding,) = judgement
        assert (finding.level, finding.where.line) == (Level.WARN, 4)
        how = "by their own loss" if "100" in guard else "where their own loss is not finite"
        assert finding.headline == f"ranks 0-1 skip the backward {how}"
    else:
        assert isinstance(judgement, Passed)
