"""DD302 and DD303 on recorded runs: ranks that call different collectives, or one that is alone in its call."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ddpdoctor.model import Passed, Where
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep
from tests.support.ends_of_run import (
    ALONE,
    MISMATCH,
    call,
    in_a_step,
    judged,
    lost,
    one_more_step,
    run,
    stopped,
)
from tests.support.recordings import recorded, replace, where


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


def test_a_long_run_of_which_not_all_is_known_parted_nowhere() -> None:
    trace = run(
        {
            0: lambda one: lost(replace(one, collectives=(call("barrier", 60, number=7),)), 60),
            1: lambda one: lost(replace(one, trailing=one_more_step()), 49),
        }
    )
    assert judged(ALONE, trace) is None


def test_the_call_that_led_rank_0_to_a_collective_is_shown(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("def mean(x):\n    dist.all_reduce(x)\n\nif rank == 0:\n    print(mean(loss))\n")
    alone = replace(call("all_reduce", 2), at=Where(str(script), 2, "mean"))
    trace = run({0: lambda one: replace(one, collectives=(alone,), trailing=one_more_step()), 1: in_a_step})
    (finding,) = ALONE.examine_run(trace)
    assert (finding.where, finding.evidence[0].where.line) == (alone.at, 5)


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
