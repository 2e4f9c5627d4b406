"""DD302, DD303, DD305, DD308 and DD310 on recorded runs: where ranks parted, and who left."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor.blame.failure import Failure
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Judgement, Level, Passed, Where
from ddpdoctor.recorder.events.process import Exit, GroupEvent, Raised
from ddpdoctor.recorder.events.training import Backward, Collective, Forward
from ddpdoctor.trace import Trace
from ddpdoctor.trace.exit_disconnect import forgive
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep
from tests.support.judging import check
from tests.support.recordings import recorded, replace, where
from tests.support.traces import CLOSED_BY_PEER

MISMATCH, ALONE, LEFT, DECIDED, KEPT = map(check, ("DD302", "DD303", "DD305", "DD308", "DD310"))


def call(operation: str, line: int, number: int = 0, time: float = 10.0, **more: Any) -> Collective:
    return Collective(time, where(line), operation, number=number, **more)


def lost(one: Recording, line: int) -> Recording:
    """The same rank, ended by a peer that was gone."""
    raised = Raised("RuntimeError", CLOSED_BY_PEER, 20.0, at=where(line))
    groups = tuple(event for event in one.groups if event.action != "destroy")
    return replace(one, raised=raised, exit=Exit("exception", 20.0), groups=groups)


def stopped(one: Recording) -> Recording:
    """The same rank, as it was when the run was stopped."""
    groups = tuple(event for event in one.groups if event.action != "destroy")
    return replace(one, exit=None, groups=groups)


def one_more_step(line: int = 49) -> TrainingStep:
    """A step whose backward did not come to its end."""
    forward = Forward(11.0, where(48), 0)
    return TrainingStep(4, 11.0, forwards=(forward,), backwards=(Backward(11.5, where(line)),))


def run(changes: Mapping[int, Callable[[Recording], Recording]], world_size: int = 2, **fields: Any) -> Trace:
    """A run in which ranks ended as is said; who raised failed as a victim."""
    made = recorded(world_size, change=lambda rank, one: changes.get(rank, lambda same: same)(one), **fields)
    ranks = []
    for one in made.ranks:
        raised = one.recording.raised if one.recording else None
        failure = raised and Failure(raised.type, raised.message, "", raised.time)
        ended = one.recording is not None and one.recording.exit is not None and not raised
        ranks.append(replace(one, failure=failure, finished=ended, exit_code=1 if raised else None))
    return replace(made, ranks=tuple(ranks), status=1)


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


@pytest.mark.parametrize("change", ["another line", "one step more", "a collective more"])
def test_a_peer_that_left_before_the_end_stays_to_blame(change):
    def altered(one: Recording) -> Recording:
        found = in_the_last_step(one)
        if change == "another line":
            return lost(found, 60)
        if change == "one step more":
            return replace(found, step_count=4)
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


def judged(which: Any, trace: Trace) -> Judgement | None:
    try:
        return which.examine_run(trace)
    except NotMeasured:
        return None


def test_a_right_run_passes() -> None:
    calls = tuple(call("all_reduce", 55, number, 10.0 + number) for number in range(3))
    trace = recorded(change=lambda rank, one: replace(one, collectives=calls))
    for which in (MISMATCH, ALONE, LEFT, DECIDED, KEPT):
        assert isinstance(which.examine_run(trace), Passed), which.code


def test_other_operations_meet() -> None:
    trace = run(
        {
            0: lambda one: lost(replace(one, collectives=(call("broadcast", 60),)), 60),
            1: lambda one: lost(replace(one, collectives=(call("all_reduce", 62),)), 62),
        }
    )
    (finding,) = MISMATCH.examine_run(trace)
    assert finding.headline == "rank 0 called broadcast where rank 1 called all_reduce"
    assert (finding.ranks, finding.where) == ((0, 1), where(60))
    assert [one.text for one in finding.evidence] == ["broadcast at train.py:60", "all_reduce at train.py:62"]
    assert judged(ALONE, trace) is None


def test_other_sizes_meet() -> None:
    shapes = {0: (6, 1), 1: (5, 1)}
    trace = recorded(
        change=lambda rank, one: replace(
            one, collectives=(call("all_gather", 60, shape=shapes[rank], dtype="float32"),)
        )
    )
    (finding,) = MISMATCH.examine_run(trace)
    assert finding.headline == (
        "rank 0 called all_gather of float32 [6, 1] where rank 1 called all_gather of float32 [5, 1]"
    )


@pytest.mark.parametrize("operation", ["all_to_all", "all_gather_object", "scatter"])
def test_sizes_that_may_differ(operation: str) -> None:
    trace = recorded(
        change=lambda rank, one: replace(
            one, collectives=(call(operation, 60, shape=(rank + 1,), dtype="float32"),)
        )
    )
    assert isinstance(MISMATCH.examine_run(trace), Passed)


def test_other_roots_meet() -> None:
    def of(root: int) -> Callable[[Recording], Recording]:
        made = call("broadcast", 60, shape=(4,), dtype="float32", peer=root)
        return lambda one: lost(replace(one, collectives=(made,)), 60)

    (finding,) = MISMATCH.examine_run(run({0: of(0), 1: of(1)}))
    assert finding.headline == (
        "rank 0 called broadcast of float32 [4] with rank 0 as its root where rank 1 called "
        "broadcast of float32 [4] with rank 1 as its root"
    )
    assert (finding.ranks, finding.where) == ((0, 1), where(60))


def test_operations_of_two_ranks_and_of_groups_are_left_alone() -> None:
    apart = {
        0: (call("send", 60, 0), call("barrier", 62, 1), call("all_reduce", 64, 0, group=(0,))),
        1: (call("recv", 61, 0), call("barrier", 62, 1)),
    }
    trace = recorded(change=lambda rank, one: replace(one, collectives=apart[rank]))
    assert isinstance(MISMATCH.examine_run(trace), Passed)


def test_a_barrier_of_rank_0_alone() -> None:
    trace = run(
        {
            0: lambda one: lost(replace(one, collectives=(call("barrier", 60),)), 60),
            1: lambda one: lost(replace(one, trailing=one_more_step()), 49),
        }
    )
    (finding,) = ALONE.examine_run(trace)
    assert finding.headline == "rank 0 alone called barrier, while rank 1 went on to backward"
    assert (finding.ranks, finding.where) == ((0,), where(60))
    assert judged(MISMATCH, trace) is None


def test_a_barrier_of_rank_0_alone_in_a_run_that_was_stopped() -> None:
    """The open call was written down when it began; the backward of the others shows by what came before it."""
    trace = run(
        {
            0: lambda one: stopped(replace(one, collectives=(call("barrier", 60, ended=False),))),
            1: lambda one: stopped(replace(one, trailing=replace(one_more_step(), backwards=()))),
        },
        timed_out=True,
    )
    (finding,) = ALONE.examine_run(trace)
    assert finding.headline == "rank 0 alone called barrier, while rank 1 went on to backward"


def test_a_reduction_of_rank_0_alone_at_the_end() -> None:
    trace = run({0: lambda one: lost(replace(one, collectives=(call("all_reduce", 60),)), 60)})
    (finding,) = ALONE.examine_run(trace)
    assert finding.headline == "rank 0 alone called all_reduce, while rank 1 went on to destroy_process_group"


def test_an_evaluation_through_the_wrapper() -> None:
    evaluation = TrainingStep(4, 11.0, forwards=(Forward(11.0, where(65), 0, grad=False),))

    def with_buffers(one: Recording) -> Recording:
        return replace(one, wrappers=(replace(one.wrappers[0], buffers=("running_mean",)),))

    trace = run(
        {0: lambda one: lost(replace(with_buffers(one), trailing=evaluation), 65), 1: with_buffers},
    )
    (finding,) = ALONE.examine_run(trace)
    assert finding.headline == (
        "rank 0 alone called the wrapped model, whose forward broadcasts buffers, while rank 1 went on to "
        "destroy_process_group"
    )
    assert "model.module" in finding.fix


def test_an_evaluation_through_a_wrapper_without_buffers_harms_nobody() -> None:
    evaluation = TrainingStep(4, 11.0, forwards=(Forward(11.0, where(65), 0, grad=False),))
    trace = run({0: lambda one: replace(one, trailing=evaluation)})
    assert isinstance(ALONE.examine_run(trace), Passed)


def test_a_rank_that_failed_by_itself_parted_from_nobody() -> None:
    trace = run({0: lambda one: lost(replace(one, collectives=(call("barrier", 60),)), 60)})
    own = replace(
        trace.ranks[1], failure=Failure("ValueError", "no label", "", 1.0), exit_code=1, finished=False
    )
    broken = replace(trace, ranks=(trace.ranks[0], own))
    for which in (MISMATCH, ALONE, DECIDED, LEFT):
        assert judged(which, broken) is None or which is LEFT
    assert judged(LEFT, broken) is None


def test_a_long_run_of_which_not_all_is_known_parted_nowhere() -> None:
    trace = run(
        {
            0: lambda one: lost(replace(one, collectives=(call("barrier", 60, number=7),)), 60),
            1: lambda one: lost(replace(one, trailing=one_more_step()), 49),
        }
    )
    assert judged(ALONE, trace) is None


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
    assert finding.headline == "rank 1 left out the backward of training step 0, which rank 0 ran"
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
    assert finding.headline == "rank 1 left out the backward of training step 0, which rank 0 ran"


def test_a_rank_that_left_out_a_step_though_it_drew_as_many_batches() -> None:
    def behind(one: Recording) -> Recording:
        return replace(one, steps=one.steps[:-1], step_count=len(one.steps) - 1)

    trace = run({0: lambda one: lost(one, 49), 1: behind})
    (finding,) = DECIDED.examine_run(trace)
    assert finding.headline == "rank 1 left out 1 training step, which rank 0 made"
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


def test_a_loop_that_a_rank_left() -> None:
    def left(one: Recording) -> Recording:
        last = replace(one.passes[-1], ended="left", drawn=1)
        return replace(one, passes=(one.passes[0], last))

    trace = run({0: lambda one: lost(one, 49), 1: left})
    (finding,) = DECIDED.examine_run(trace)
    assert finding.headline == "rank 1 left the training loop after 4 steps, while rank 0 went on"
    assert (finding.ranks, finding.where) == ((1,), where(45))


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


def test_the_call_that_led_rank_0_to_a_collective_is_shown(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("def mean(x):\n    dist.all_reduce(x)\n\nif rank == 0:\n    print(mean(loss))\n")
    alone = replace(call("all_reduce", 2), at=Where(str(script), 2, "mean"))
    trace = run({0: lambda one: replace(one, collectives=(alone,), trailing=one_more_step()), 1: in_a_step})
    (finding,) = ALONE.examine_run(trace)
    assert (finding.where, finding.evidence[0].where.line) == (alone.at, 5)


def in_a_step(one: Recording) -> Recording:
    """The same rank, which went on to another step."""
    return replace(one, trailing=one_more_step())


@pytest.mark.parametrize(("guard", "alone"), [("if rank == 0:", True), ("if last:", False)])
def test_of_two_collectives_it_is_the_one_under_a_condition_on_the_rank(
    tmp_path: Path, guard: str, alone: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{guard}\n    dist.all_gather_object(times, time)\ndist.barrier()\n")
    gathers = replace(call("all_gather_object", 2), at=Where(str(script), 2))
    meets = replace(call("barrier", 3), at=Where(str(script), 3))
    trace = run(
        {
            0: lambda one: lost(replace(one, collectives=(gathers,)), 2),
            1: lambda one: lost(replace(one, collectives=(meets,)), 3),
        }
    )
    told, silent = (ALONE, MISMATCH) if alone else (MISMATCH, ALONE)
    (finding,) = told.examine_run(trace)
    assert finding.where == gathers.at
    assert judged(silent, trace) is None


@pytest.mark.parametrize(
    ("guard", "exchanged", "told"),
    [
        ("if torch.isnan(loss):", False, True),
        ("if torch.isnan(loss):", True, False),
        ("if loss is None:", False, False),
    ],
)
def test_a_backward_that_is_left_out_where_a_ranks_own_loss_is_not_finite(
    tmp_path: Path, guard: str, exchanged: bool, told: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        f"for x in loader:\n    loss = model(x)\n    {guard}\n        continue\n    loss.backward()\n"
    )

    def change(rank: int, one: Recording) -> Recording:
        def written(step: TrainingStep) -> TrainingStep:
            forward = replace(step.forwards[0], at=Where(str(script), 2, "<module>"))
            backward = replace(
                step.backwards[0], at=Where(str(script), 5, "<module>"), value=1.0 + rank, reduced=(0,)
            )
            between = call("all_reduce", 3, time=(forward.time + backward.time) / 2)
            calls = (between,) if exchanged else ()
            return replace(step, forwards=(forward,), backwards=(backward,), collectives=calls)

        return replace(one, steps=tuple(map(written, one.steps)))

    judgement = DECIDED.examine_run(recorded(change=change))
    if told:
        (finding,) = judgement
        assert (finding.level, finding.where.line) == (Level.WARN, 3)
        assert finding.headline == "ranks 0-1 each leave out the backward where their own loss is not finite"
    else:
        assert isinstance(judgement, Passed)
