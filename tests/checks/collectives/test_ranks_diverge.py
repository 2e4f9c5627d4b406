"""DD302 and DD303 on recorded runs: ranks that call different collectives, or one that is alone in its call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor.model import Passed, Where
from ddpdoctor.recorder.events.training import Backward, Collective, Forward
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.recording import Recording
from tests.support.ends_of_run import (
    ALONE,
    DECIDED,
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
    assert "src=0" in finding.fix


def test_roots_that_are_not_all_that_differs() -> None:
    def of(rank: int) -> Callable[[Recording], Recording]:
        made = call("broadcast", 60, shape=(4 + rank,), dtype="float32", peer=rank)
        return lambda one: lost(replace(one, collectives=(made,)), 60)

    (finding,) = MISMATCH.examine_run(run({0: of(0), 1: of(1)}))
    assert "src=0" not in finding.fix


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
    assert finding.headline == "only rank 0 called barrier, while rank 1 went on to backward"
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
    assert finding.headline == "only rank 0 called barrier, while rank 1 went on to backward"


def test_a_reduction_of_rank_0_alone_at_the_end() -> None:
    trace = run({0: lambda one: lost(replace(one, collectives=(call("all_reduce", 60),)), 60)})
    (finding,) = ALONE.examine_run(trace)
    assert finding.headline == "only rank 0 called all_reduce, while rank 1 went on to destroy_process_group"


def test_an_evaluation_through_the_wrapper() -> None:
    evaluation = TrainingStep(4, 11.0, forwards=(Forward(11.0, where(65), 0, grad=False),))

    def with_buffers(one: Recording) -> Recording:
        return replace(one, wrappers=(replace(one.wrappers[0], buffers=("running_mean",)),))

    trace = run(
        {0: lambda one: lost(replace(with_buffers(one), trailing=evaluation), 65), 1: with_buffers},
    )
    (finding,) = ALONE.examine_run(trace)
    assert finding.headline == (
        "only rank 0 called the wrapped model, whose forward broadcasts buffers, while rank 1 went on to "
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
    text = "def mean(x):\n    dist.all_reduce(x)\n\nif dist.get_rank() == 0:\n    print(mean(loss))\n"
    script.write_text(f"{text}import torch.distributed as dist\n")
    alone = replace(call("all_reduce", 2), at=Where(str(script), 2, "mean"))
    trace = run({0: lambda one: replace(one, collectives=(alone,), trailing=one_more_step()), 1: in_a_step})
    (finding,) = ALONE.examine_run(trace)
    assert (finding.where, finding.evidence[0].where.line) == (alone.at, 5)


RANKS = "import torch.distributed as dist\nme, lora_rank = dist.get_rank(), 4\n"


@pytest.mark.parametrize(("guard", "alone"), [("if me == 0:", True), ("if lora_rank:", False)])
def test_of_two_collectives_it_is_the_one_under_a_condition_on_the_rank(
    tmp_path: Path, guard: str, alone: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"{guard}\n    dist.all_gather_object(times, time)\ndist.barrier()\n{RANKS}")
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


LOOP = """\
for x in loader:
    loss = model(x)
    if loss > 9:
        dist.all_reduce(loss)
    loss.backward()
    optimizer.step()
    log(loss)
dist.all_reduce(total)
"""
SAID = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. {}. Received data size",
)


def placed(one: Recording, script: Path, **changes: Any) -> Recording:
    """The same rank in its fifth step, of a script that can be read."""
    forward, backward, update, loop = (Where(str(script), line, "<module>") for line in (2, 5, 6, 1))
    steps = tuple(
        replace(
            step,
            forwards=tuple(replace(it, at=forward) for it in step.forwards),
            backwards=tuple(replace(it, at=backward) for it in step.backwards),
            optimizer_steps=tuple(replace(it, at=update) for it in step.optimizer_steps),
        )
        for step in one.steps
    )
    passes = tuple(replace(it, at=loop) for it in one.passes)
    fifth = TrainingStep(4, 11.0, forwards=(Forward(11.0, forward, 0),))
    return stopped(replace(one, **{"steps": steps, "passes": passes, "trailing": fifth, **changes}))


def raised_at(one: Recording, script: Path, line: int) -> Recording:
    at = Where(str(script), line, "<module>")
    ended = lost(one, line)
    assert ended.raised is not None
    return replace(ended, raised=replace(ended.raised, at=at, frames=(at,)))


def in_backward(one: Recording, script: Path, **changes: Any) -> Recording:
    here = placed(one, script, **changes)
    assert here.trailing is not None
    begun = Backward(11.5, Where(str(script), 5, "<module>"))
    return raised_at(replace(here, trailing=replace(here.trailing, backwards=(begun,))), script, 5)


def of_line(script: Path, line: int, time: float, number: int = 0, **more: Any) -> Collective:
    made = call("all_reduce", line, number, time, **{"shape": (), "dtype": "float32", **more})
    return replace(made, at=Where(str(script), line, "<module>"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(LOOP)
    return file


def aborted(trace: Trace, rank: int, message: str) -> Trace:
    said = (SAID[0], SAID[1].format(message))
    ranks = (
        replace(one, exit_code=-6, output=said, finished=False, failure=None) if one.rank == rank else one
        for one in trace.ranks
    )
    return replace(trace, ranks=tuple(ranks))


def rank_1_outside_backward(script: Path, once: Collective) -> Trace:
    """The others are in backward, and all have made a call once."""
    return run(
        {
            0: lambda one: in_backward(one, script, collectives=(once,)),
            1: lambda one: placed(one, script, collectives=(once,)),
            2: lambda one: in_backward(one, script, collectives=(once,)),
        },
        3,
    )


def alone_in_its_step(trace: Trace, script: Path, rank: int) -> None:
    (finding,) = ALONE.examine_run(trace)
    others = {0: "ranks 1-2", 1: "ranks 0, 2"}[rank]
    assert finding.headline == f"only rank {rank} called all_reduce, while {others} went on to backward"
    assert (finding.where.file, finding.where.line) == (str(script), 4)
    assert {one.where.line for one in finding.evidence if one.where} == {4, 5}
    assert judged(DECIDED, trace) is None
    assert judged(MISMATCH, trace) is None


def test_a_rank_amid_its_step_left_no_backward_out(script: Path) -> None:
    """Its own call fails when gloo has aborted another rank, in whose backward it met it."""
    own = of_line(script, 4, 11.5, shape=(1000,))
    trace = run(
        {
            0: lambda one: raised_at(placed(one, script, collectives=(own,)), script, 4),
            1: lambda one: in_backward(one, script),
            2: lambda one: placed(one, script),
        },
        3,
    )
    alone_in_its_step(aborted(trace, 2, "668 vs 8"), script, 0)


def test_a_rank_that_gloo_aborted_in_a_later_call_of_a_line(script: Path) -> None:
    """All ranks called it in the second step; of the call in which it was aborted nothing is written down."""
    trace = rank_1_outside_backward(script, of_line(script, 4, 1.3))
    alone_in_its_step(aborted(trace, 1, "8 vs 4"), script, 1)
    (finding,) = MISMATCH.examine_run(aborted(trace, 1, "12 vs 4"))
    assert finding.headline == "rank 1 received 12 bytes in a collective that expects 4"
    assert judged(DECIDED, aborted(trace, 1, "12 vs 4")) is None


def test_a_rank_alone_in_a_late_step_without_record(script: Path) -> None:
    late = {"step_count": 40, "trailing": None}
    own = of_line(script, 4, 50.0, ended=False)
    trace = run(
        {
            0: lambda one: raised_at(placed(one, script, **late), script, 5),
            1: lambda one: placed(one, script, collectives=(own,), **late),
            2: lambda one: raised_at(placed(one, script, **late), script, 5),
        },
        3,
    )
    alone_in_its_step(aborted(trace, 1, "8 vs 4"), script, 1)


@pytest.mark.parametrize(
    ("line", "of_others"),
    [(4, (4,)), (8, ())],  # the others called it, too; it is behind the loop
)
def test_a_late_call_that_may_be_another_step_of_the_others(
    script: Path, line: int, of_others: tuple[int, ...]
) -> None:
    late = {"step_count": 40, "trailing": None}
    known = tuple(of_line(script, each, 1.3) for each in of_others)
    own = of_line(script, line, 50.0, ended=False)
    trace = run(
        {
            0: lambda one: raised_at(placed(one, script, collectives=known, **late), script, 5),
            1: lambda one: placed(one, script, collectives=(own,), **late),
        }
    )
    assert judged(ALONE, aborted(trace, 1, "8 vs 4")) is None


def test_a_rank_that_left_its_backward_out_and_was_aborted_in_a_later_call(script: Path) -> None:
    trace = rank_1_outside_backward(script, of_line(script, 7, 1.8))
    (finding,) = DECIDED.examine_run(aborted(trace, 1, "8 vs 4"))
    assert finding.headline == "rank 1 skipped the backward of training step 4, which ranks 0, 2 ran"


def test_an_exception_in_the_loop_is_no_decision_to_leave_it(script: Path) -> None:
    """Rank 0 failed in a call of its own behind its backward, and the others had drawn the next batch."""

    def behind(one: Recording) -> Recording:
        last = replace(one.passes[-1], at=Where(str(script), 1, "<module>"), ended="left", drawn=1)
        return replace(one, passes=(one.passes[0], last))

    trace = run(
        {
            0: lambda one: raised_at(behind(placed(one, script, trailing=None)), script, 7),
            1: lambda one: in_backward(one, script),
        }
    )
    assert judged(DECIDED, trace) is None
    left = run({0: lambda one: behind(placed(one, script)), 1: lambda one: in_backward(one, script)})
    assert judged(DECIDED, left) is not None
