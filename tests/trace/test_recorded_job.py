"""Verdicts of jobs of which ddpdoctor's own recorder saw what led to the standstill."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ddpdoctor.blame.hang_snapshot import HangSnapshot
from ddpdoctor.model import Level, Source, Where
from ddpdoctor.recorder.events.process import Exit, GroupEvent
from ddpdoctor.recorder.events.training import Backward, Collective, Forward, Wrapper
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.recording import Recording
from tests.support.diagnosis import Diagnosis, diagnosis_of
from tests.support.hangs import backward, collective, forward, hung, queue, script, snapshot
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import KEYS, recorded, recording, replace, step, where

Change = Callable[[Recording], Recording]
IN_BACKWARD, AT_BARRIER = backward(49), collective("barrier", 60)


def running(rank: int, size: int, **changes: object) -> Recording:
    """A rank in its fifth step: it has been forward, and has not left the loop."""
    trailing = TrainingStep(4, 4.0, forwards=(Forward(4.2, where(48), 0, input=f"input of {rank}"),))
    groups = (GroupEvent("init", 0.0, where(20), "gloo", rank, size),)
    return replace(recording(rank, size), **{"trailing": trailing, "exit": None, "groups": groups, **changes})


def judged(still: HangSnapshot, own: dict[int, Recording]) -> Diagnosis:
    found = diagnosis_of(hung(still, own))
    assert found is not None
    return found


def one_elsewhere(size: int, culprit: int, stack: tuple, change: Change) -> Diagnosis:
    """All ranks wait in backward, but one."""
    stacks = {rank: stack if rank == culprit else IN_BACKWARD for rank in range(size)}
    own = {rank: running(rank, size) for rank in range(size)}
    return judged(snapshot(stacks), {**own, culprit: change(own[culprit])})


def test_a_rank_that_skipped_a_parameter_came_out_of_backward_alone():
    unreduced = Backward(4.5, where(49), reduced=(), collectives=0)

    def change(one: Recording) -> Recording:
        trailing = replace(one.trailing, backwards=(unreduced,))
        return replace(one, trailing=trailing, collectives=(call("barrier", 60, 4.7, 0, ended=False),))

    found = one_elsewhere(4, 2, AT_BARRIER, change)
    assert (found.code, found.culprits, found.waiting) == ("DD204", (2,), (0, 1, 3))
    assert found.where == where(49)
    assert found.headline == (
        "rank 2 finished the backward without a gradient for some parameters, and ranks 0-1, 3 wait there for its part"
    )


def test_a_backward_without_synchronisation_is_no_skipped_parameter():
    paused = Forward(4.2, where(48), 0, synced=False)
    trailing = TrainingStep(4, 4.0, (paused,), (Backward(4.5, where(49)),))
    found = one_elsewhere(3, 1, AT_BARRIER, lambda one: replace(one, trailing=trailing))
    assert found.code != "DD204"


def call(operation: str, line: int, time: float, number: int, **fields: object) -> Collective:
    return Collective(time, where(line), operation, number=number, **fields)


@pytest.mark.parametrize("size", [2, 3, 64, 1024])
def test_a_barrier_of_one_rank(size):
    def change(one: Recording) -> Recording:
        return replace(one, trailing=None, collectives=(call("barrier", 60, 3.95, 0, ended=False),))

    found = one_elsewhere(size, 0, AT_BARRIER, change)
    assert (found.code, found.culprits) == ("DD303", (0,))
    assert found.where == where(60)
    assert found.headline.startswith("only rank 0 called barrier, while rank")
    assert found.headline.endswith("went on to backward")


def test_an_evaluation_of_rank_0_through_a_wrapper_with_buffers():
    wrapper = Wrapper(0, where(30), 0.1, "Net", buffers=("running_mean",), flags={"broadcast_buffers": True})
    seen = {
        0: running(0, 2, wrappers=(wrapper,), trailing=None),
        1: running(1, 2, wrappers=(wrapper,), trailing=None),
    }
    found = judged(snapshot({0: forward(80), 1: forward(48)}), seen)
    assert (found.code, found.culprits) == ("DD303", (0,))
    assert "model.module" in found.fix
    assert found.where is not None
    assert found.where.line == 80


@pytest.mark.parametrize("operation", ["barrier", "new_group"])
def test_an_evaluation_of_rank_0_while_the_others_went_on_to_a_collective(operation):
    wrapper = Wrapper(0, where(30), 0.1, "Net", buffers=("running_mean",), flags={"broadcast_buffers": True})
    own = {rank: running(rank, 2, wrappers=(wrapper,), trailing=None) for rank in range(2)}
    if operation == "new_group":
        own[1] = groups(own[1], (0, 1), making=True)
    found = judged(snapshot({0: forward(80), 1: collective(operation, 60)}), own)
    assert (found.code, found.culprits, found.where) == ("DD303", (0,), where(80))
    assert found.headline.endswith(f"while rank 1 went on to {operation}")


def test_collectives_that_differ_at_one_position():
    own = {
        rank: running(
            rank,
            3,
            trailing=None,
            collectives=(
                call("all_reduce", 70, 4.1, 0),
                call("broadcast" if rank == 2 else "all_reduce", 71, 4.2, 1, ended=False),
            ),
        )
        for rank in range(3)
    }
    stacks = {
        0: collective("all_reduce", 71),
        1: collective("all_reduce", 71),
        2: collective("broadcast", 71),
    }
    found = judged(snapshot(stacks), own)
    assert (found.code, found.culprits, found.waiting) == ("DD302", (2,), (0, 1))
    assert found.headline == "rank 0 called all_reduce where rank 2 called broadcast"


def test_tensors_of_different_sizes():
    own = {
        rank: running(
            rank,
            2,
            trailing=None,
            collectives=(call("all_gather", 70, 4.1, 0, ended=False, shape=(6 - rank, 1), dtype="float32"),),
        )
        for rank in range(2)
    }
    found = judged(snapshot({0: collective("all_gather", 70), 1: collective("all_gather", 70)}), own)
    assert (found.code, found.culprits) == ("DD302", (0, 1))
    assert found.headline == (
        "rank 0 called all_gather of float32 [6, 1] where rank 1 called all_gather of float32 [5, 1]"
    )


def left(one: Recording, drawn: int, ended: str) -> Recording:
    last = replace(one.passes[-1], drawn=drawn, ended=ended, end=3.9)
    begun = (call("barrier", 60, 4.0, 0, ended=False),)
    return replace(one, passes=(one.passes[0], last), trailing=None, collectives=begun)


def goes_on(rank: int, size: int) -> Recording:
    one = running(rank, size)
    last = replace(one.passes[-1], drawn=3, ended="open", end=None)
    return replace(one, passes=(one.passes[0], last))


@pytest.mark.parametrize(("ended", "code"), [("exhausted", "DD106"), ("left", "DD308")])
def test_who_left_the_loop_first(ended, code):
    own = {0: goes_on(0, 3), 1: left(running(1, 3), 2, ended), 2: goes_on(2, 3)}
    found = judged(snapshot({0: IN_BACKWARD, 1: AT_BARRIER, 2: IN_BACKWARD}), own)
    assert (found.code, found.culprits, found.waiting) == (code, (1,), (0, 2))


def test_a_stream_that_ended_early_is_one_finding():
    own = {0: goes_on(0, 2), 1: left(running(1, 2), 2, "exhausted")}
    trace = hung(snapshot({0: IN_BACKWARD, 1: AT_BARRIER}), own)
    finding = only_finding("DD106", Source.RUN, trace)
    assert finding.headline == (
        "rank 1 ran out of batches after 2, and rank 0 waits in batch 3, in backward at train.py:49"
    )
    assert finding.ranks == (1,)
    assert skipped("DD308", Source.RUN, trace).reason == "the job hangs (DD106)"


def test_a_batch_whose_backward_one_rank_left_out():
    steps = tuple(
        step(i, forwards=(Forward(i + 0.2, where(48), 0),) * (2 if i == 2 else 1)) for i in range(4)
    )
    own = {
        0: running(0, 3),
        1: running(1, 3, steps=steps, trailing=None, collectives=(call("barrier", 60, 4.5, 0, ended=False),)),
        2: running(2, 3),
    }
    found = judged(snapshot({0: IN_BACKWARD, 1: AT_BARRIER, 2: IN_BACKWARD}), own)
    assert (found.code, found.culprits) == ("DD308", (1,))
    assert found.headline == (
        "rank 1 skipped the backward of training step 2, and ranks 0, 2 wait in backward at train.py:49"
    )


def test_a_rank_that_ended_with_status_0():
    ended = replace(running(1, 2), trailing=None, exit=Exit("os._exit", 4.3, 0, where(55)))
    found = judged(snapshot({0: collective("barrier", 70)}), {0: running(0, 2), 1: ended})
    assert (found.code, found.culprits, found.where) == ("DD305", (1,), where(55))
    assert found.headline == (
        "rank 1 ended by os._exit with status 0, and rank 0 still waits in barrier at train.py:70"
    )


def test_who_was_ended_by_fast_forward_is_no_culprit():
    ended = replace(running(1, 2), exit=Exit("shortened", 4.3, 0))
    assert diagnosis_of(hung(snapshot({0: IN_BACKWARD}), {0: running(0, 2), 1: ended})) is None


def test_a_message_without_another_end():
    own = {
        0: running(0, 3, collectives=(call("recv", 70, 4.5, -1, peer=1, ended=False),)),
        1: running(1, 3, collectives=(call("barrier", 60, 4.5, 0, ended=False),)),
        2: running(2, 3, collectives=(call("barrier", 60, 4.5, 0, ended=False),)),
    }
    found = judged(snapshot({0: collective("recv", 70), 1: AT_BARRIER, 2: AT_BARRIER}), own)
    assert (found.code, found.culprits) == ("DD301", (1,))
    assert found.headline == (
        "rank 0 waits in recv at train.py:70 for rank 1, which waits in barrier at train.py:60"
    )


def test_a_ring_in_which_everybody_receives_first():
    own = {
        rank: running(rank, 4, collectives=(call("recv", 70, 4.5, -1, peer=(rank - 1) % 4, ended=False),))
        for rank in range(4)
    }
    found = judged(snapshot({rank: collective("recv", 70) for rank in range(4)}), own)
    assert (found.code, found.culprits) == ("DD302", (0, 1, 2, 3))


def in_group(rank: int, size: int, members: tuple[int, ...], name: str = "") -> Recording:
    waits = call("all_reduce", 70, 4.5, 0, group=members, group_name=name, ended=False)
    return running(rank, size, collectives=(waits,))


def test_groups_that_are_used_in_a_circle():
    pairs = {0: (0, 1), 1: (1, 2), 2: (0, 2)}
    own = {rank: in_group(rank, 3, members) for rank, members in pairs.items()}
    found = judged(snapshot({rank: collective("all_reduce", 70) for rank in range(3)}), own)
    assert (found.code, found.culprits) == ("DD309", (0, 1, 2))
    assert "rank 0 for ranks 0-1, rank 1 for ranks 1-2, rank 2 for ranks 0, 2" in found.headline


def test_groups_of_equal_members_that_are_used_in_different_orders():
    names = {0: "2", 1: "1", 2: "1"}
    recordings = {rank: in_group(rank, 3, (0, 1, 2), name) for rank, name in names.items()}
    cause = judged(snapshot({rank: collective("all_reduce", 70) for rank in range(3)}), recordings)
    assert (cause.code, cause.culprits) == ("DD309", (0, 1, 2))
    assert "rank 0 for group '2' of ranks 0-2, rank 1 for group '1' of ranks 0-2" in cause.headline


def test_only_the_group_that_waits_is_followed():
    own = {rank: in_group(rank, 4, (0, 1) if rank < 2 else (2, 3)) for rank in range(4)}
    waits = collective("all_reduce", 70)
    found = judged(snapshot({0: waits, 1: waits, 2: waits, 3: queue(12)}), own)
    assert (found.code, found.culprits) == ("DD307", (3,))


def groups(one: Recording, *members: tuple[int, ...], making: bool = False) -> Recording:
    made = [GroupEvent("new_group", 1.0, where(25), ranks=ranks) for ranks in members]
    if making:
        made[-1] = replace(made[-1], action="making")
    return replace(one, groups=(*one.groups, *made))


def test_groups_in_different_orders():
    inside = collective("new_group", 25)
    own = {
        0: groups(running(0, 3), (0, 1), (0, 1, 2), making=True),
        1: groups(running(1, 3), (0, 1, 2), making=True),
        2: groups(running(2, 3), (0, 1), (0, 1, 2), making=True),
    }
    found = judged(snapshot({rank: inside for rank in range(3)}), own)
    assert (found.code, found.culprits, found.where) == ("DD309", (1,), where(25))
    assert found.headline == "rank 1 called new_group for ranks 0-2 where rank 0 called it for ranks 0-1"


def test_a_group_that_only_its_member_made():
    inside = collective("new_group", 26)
    own = {
        0: groups(running(0, 3), (0,), (0, 1, 2), making=True),
        1: groups(running(1, 3), (0, 1, 2), making=True),
        2: groups(running(2, 3), (0, 1, 2), making=True),
    }
    found = judged(snapshot({rank: inside for rank in range(3)}), own)
    assert (found.code, found.culprits) == ("DD309", (0,))
    assert found.headline == "only rank 0 called new_group for rank 0, and ranks 1-2 did not"


def test_orders_that_differ_are_found_where_nothing_stands_still():
    def change(rank: int, one: Recording) -> Recording:
        return groups(one, (0, 1), (2, 3)) if rank < 2 else groups(one, (2, 3), (0, 1))

    finding = only_finding("DD309", Source.RUN, recorded(4, change))
    assert finding.level is Level.WARN
    assert finding.ranks == (2, 3)


def test_a_group_that_only_its_member_made_where_nothing_stands_still():
    def change(rank: int, one: Recording) -> Recording:
        return groups(one, (0,)) if rank == 0 else one

    finding = only_finding("DD309", Source.RUN, recorded(3, change))
    assert (finding.level, finding.ranks, finding.where) == (Level.WARN, (0,), where(25))
    assert finding.headline == "only rank 0 called new_group for rank 0, and ranks 1-2 did not"


def test_groups_that_their_members_make_among_themselves_are_right():
    def change(rank: int, one: Recording) -> Recording:
        event = GroupEvent("new_group", 1.0, where(25), ranks=(rank,), local=True)
        return replace(one, groups=(*one.groups, event))

    assert passed("DD309", Source.RUN, recorded(2, change)).text.startswith(
        "the ranks created 1 process group"
    )


def test_a_job_that_ranks_never_joined():
    joining = GroupEvent("joining", 1.0, where(20), environ={"WORLD_SIZE": "4"})
    own = {rank: running(rank, 4, groups=(joining,), trailing=None, steps=()) for rank in range(2)}
    stacks = {rank: collective("init_process_group", 20) for rank in range(2)}
    found = diagnosis_of(hung(snapshot(stacks), own, world_size=None))
    assert found is not None
    assert (found.code, found.culprits) == ("DD301", (2, 3))
    assert found.headline.startswith("ranks 0-1 wait in init_process_group at train.py:20 for ranks 2-3")


def test_records_of_all_the_rest_are_not_needed_to_blame_one():
    found = judged(snapshot({0: IN_BACKWARD, 1: queue(12)}), {0: running(0, 2)})
    assert (found.code, found.culprits) == ("DD307", (1,))


def test_without_stacks_the_records_tell_who_is_in_a_collective():
    own = {
        0: running(0, 2, collectives=(call("barrier", 60, 4.5, 0, ended=False),)),
        1: running(1, 2, exit=Exit("returned", 4.6, 0)),
    }
    found = judged(snapshot({}), own)
    assert (found.code, found.culprits) == ("DD305", (1,))


def test_a_parameter_missed_in_the_last_step_is_named_once():
    missing = {KEYS[0]: "gradient", KEYS[1]: None}
    last = step(3)
    update = replace(last.optimizer_steps[0], gradients=missing)
    steps = (*(step(i) for i in range(3)), replace(last, optimizer_steps=(update,)))
    own = {
        0: running(0, 2),
        1: running(1, 2, steps=steps, trailing=None, collectives=(call("barrier", 60, 4.5, 0, ended=False),)),
    }
    trace = hung(snapshot({0: IN_BACKWARD, 1: AT_BARRIER}), own)
    assert only_finding("DD204", Source.RUN, trace).ranks == (1,)


@pytest.mark.parametrize(("line", "code"), [(3, "DD303"), (5, "DD308")])
def test_a_barrier_of_one_rank_amid_its_step(tmp_path: Path, line: int, code: str) -> None:
    """Ahead of the backward it has left out none; behind it, it has."""
    file = tmp_path / "train.py"
    file.write_text(
        "for x in loader:\n    loss = model(x)\n    dist.barrier()\n    loss.backward()\n    dist.barrier()\n"
    )
    forward, done, barrier = (Where(str(file), number, "main") for number in (2, 4, line))

    def moved(rank: int, **changes: object) -> Recording:
        steps = tuple(
            step(
                i,
                forwards=(Forward(i + 0.2, forward, 0),),
                backwards=(Backward(i + 0.5, done, reduced=(0,)),),
            )
            for i in range(4)
        )
        trailing = TrainingStep(4, 4.0, forwards=(Forward(4.2, forward, 0),))
        return running(rank, 3, steps=steps, trailing=trailing, **changes)

    own = {rank: moved(rank) for rank in range(3)}
    alone = Collective(4.5, barrier, "barrier", number=0, ended=False)
    at_barrier = (script(line, file=str(file)), *AT_BARRIER[1:])
    in_backward = (script(4, file=str(file)), *IN_BACKWARD[1:])
    still = snapshot({0: at_barrier, 1: in_backward, 2: in_backward})
    found = judged(still, {**own, 0: moved(0, collectives=(alone,))})
    assert (found.code, found.culprits) == (code, (0,))
