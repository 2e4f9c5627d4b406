import pytest

from ddpdoctor.blame.causes import (
    CallCircle,
    CalledAlone,
    Cause,
    LeftCallOut,
    LeftNoDump,
    Mismatch,
    NeverCame,
    NobodyLate,
)
from ddpdoctor.blame.hang_analysis import cause_of
from ddpdoctor.hang.flight.dumped_job import DumpedJob
from ddpdoctor.hang.flight.folder import read_folder
from tests.support.flight import entry, ring, waiting, write_job

SIZES = (2, 8, 64, 256)


def judged(folder, world_size, entries, **more) -> Cause | None:
    return cause_of(DumpedJob(read_folder(write_job(folder / "dumps", world_size, entries, **more)).ranks))


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("world_size", SIZES)
def test_the_rank_that_never_came(tmp_path, world_size, as_json):
    culprit = world_size // 2
    found = judged(
        tmp_path,
        world_size,
        lambda rank: ring(1, 9) + ([] if rank == culprit else [waiting(10)]),
        as_json=as_json,
    )
    assert isinstance(found, NeverCame)
    assert found.what == "all_reduce 10 of the default group"
    assert found.culprits == (culprit,)
    assert culprit not in found.waiting
    assert len(found.waiting) == world_size - 1


@pytest.mark.parametrize("world_size", SIZES)
def test_the_first_rank_is_found_too(tmp_path, world_size):
    found = judged(tmp_path, world_size, lambda rank: ring(1, 9) + ([waiting(10)] if rank else []))
    assert isinstance(found, NeverCame)
    assert found.culprits == (0,)


@pytest.mark.parametrize("world_size", SIZES)
def test_most_ranks_that_stay_away_are_not_excused_by_their_number(tmp_path, world_size):
    found = judged(tmp_path, world_size, lambda rank: ring(1, 9) + ([] if rank else [waiting(10)]))
    assert isinstance(found, NeverCame)
    assert (found.culprits, found.waiting) == (tuple(range(1, world_size)), (0,))


@pytest.mark.parametrize("world_size", SIZES)
def test_a_rank_that_left_no_dump(tmp_path, world_size):
    culprit = world_size - 1
    found = judged(tmp_path, world_size, lambda rank: None if rank == culprit else [*ring(1, 9), waiting(10)])
    assert isinstance(found, LeftNoDump)
    assert found.culprits == (culprit,)


@pytest.mark.parametrize("world_size", SIZES[1:])
def test_a_rank_that_calls_something_else(tmp_path, world_size):
    def entries(rank):
        own = entry(10, operation="broadcast") if rank == 3 else entry(10)
        return [*ring(1, 9), own, waiting(11)]

    found = judged(tmp_path, world_size, entries)
    assert isinstance(found, Mismatch)
    assert (found.position, found.culprits) == ("position 10 of the default group", (3,))
    assert (found.first.ranks, len(found.second.ranks)) == ((3,), world_size - 1)


def test_of_two_that_disagree_none_is_blamed(tmp_path):
    found = judged(
        tmp_path, 2, lambda rank: [*ring(1, 9), waiting(10, operation="barrier" if rank else "all_reduce")]
    )
    assert isinstance(found, Mismatch)
    assert found.culprits == ()
    assert sorted((found.first.ranks, found.second.ranks)) == [(0,), (1,)]


@pytest.mark.parametrize("world_size", SIZES[1:])
def test_a_rank_that_left_one_out_is_told_by_what_follows(tmp_path, world_size):
    def entries(rank):
        calls = ["all_reduce"] * 5 + ["barrier", "all_gather", "broadcast", "all_reduce", "barrier"]
        if rank == 5:
            del calls[6]
        own = [entry(n, operation=call, input_sizes=[[4]]) for n, call in enumerate(calls, 1)]
        return [*own[:-1], {**own[-1], "state": "started", "retired": False}]

    found = judged(tmp_path, world_size, entries)
    assert isinstance(found, LeftCallOut)
    assert (found.position, found.culprits, found.call) == (
        "position 7 of the default group",
        (5,),
        "all_gather of Float [4]",
    )


@pytest.mark.parametrize("caller", [0, 1])
def test_of_two_the_one_that_called_something_more_is_told(tmp_path, caller):
    def entries(rank):
        calls = (
            ["all_reduce"] * 5 + ["all_gather"] * (rank == caller) + ["broadcast", "all_reduce", "barrier"]
        )
        own = [entry(n, operation=call, input_sizes=[[4]]) for n, call in enumerate(calls, 1)]
        return [*own[:-1], {**own[-1], "state": "started", "retired": False}]

    found = judged(tmp_path, 2, entries)
    assert isinstance(found, CalledAlone)
    assert (found.culprits, found.call) == ((caller,), "all_gather of Float [4]")
    assert found.others.ranks == (1 - caller,)


def test_blame_follows_the_wait_into_another_group(tmp_path):
    # Rank 1 waits for rank 0 in group 1; ranks 2 and 3 wait for ranks 0 and 1 in the default group.
    def entries(rank):
        return {0: ring(1, 5), 1: [*ring(1, 5), waiting(3, group="1")]}.get(rank, [*ring(1, 5), waiting(6)])

    found = judged(tmp_path, 4, entries, g1=(0, 1))
    assert isinstance(found, NeverCame)
    assert found.culprits == (0,)


def test_groups_used_in_different_orders_wait_in_a_circle(tmp_path):
    def entries(rank):
        return [*ring(1, 5), waiting(1, group="1" if rank == 0 else "2")]

    found = judged(tmp_path, 2, entries, g1=(0, 1), g2=(0, 1))
    assert isinstance(found, CallCircle)
    assert found.culprits == (0, 1)


def test_all_came_and_it_does_not_complete(tmp_path):
    found = judged(tmp_path, 8, lambda rank: [*ring(1, 9), waiting(10)])
    assert isinstance(found, NobodyLate)
    assert (found.what, found.culprits) == ("all_reduce 10 of the default group", ())


def test_rings_that_wrapped_at_different_places(tmp_path):
    found = judged(
        tmp_path, 8, lambda rank: ring(100 + rank * 50, 900) + ([waiting(901)] if rank != 2 else [])
    )
    assert isinstance(found, NeverCame)
    assert found.culprits == (2,)


@pytest.mark.parametrize("world_size", SIZES)
def test_a_healthy_job_has_nobody_to_blame(tmp_path, world_size):
    assert judged(tmp_path, world_size, lambda rank: ring(1, 20)) is None


def test_uneven_parts_of_gather_and_all_to_all_are_no_mismatch(tmp_path):
    def entries(rank):
        operations = [
            "gather",
            "scatter",
            "all_to_all",
            "alltoall_base",
            "all_gather",
            "_reduce_scatter_base",
        ]
        return [
            entry(n, operation=op, input_sizes=[[4 + rank]] if n < 5 else [[4]])
            for n, op in enumerate(operations, 1)
        ]

    assert judged(tmp_path, 4, entries) is None


def test_a_root_and_the_others_may_give_different_shapes(tmp_path):
    def entries(rank):
        return [entry(1, operation="gather", input_sizes=[[4]], output_sizes=[[4]] * (0 if rank else 4))]

    assert judged(tmp_path, 4, entries) is None
