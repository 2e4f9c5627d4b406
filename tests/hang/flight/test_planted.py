"""A fault is planted in the dumps of jobs of many sizes, and the verdict has to name the rank it was planted in."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpdoctor.hang.flight.reduce import reduce
from tests.support.diagnosis import diagnosis_of_dumps
from tests.support.flight import batch, dump, entry, half, job, ring, waiting

SIZES = (8, 64, 256, 1024)


@dataclass(frozen=True)
class Fault:
    code: str
    entries: Callable[[int, int], Callable[[int], list | None]]
    """Of a culprit and a world size: what each rank's ring holds."""
    says: str
    """A part of the headline, with the culprit's number in it."""
    groups: Callable[[int, int], dict] = lambda culprit, size: {}


def missing(culprit, size):
    return lambda rank: ring(1, 3) + ([] if rank == culprit else [waiting(4)])


def behind(culprit, size):
    """The others issue ahead, without waiting."""
    return lambda rank: ring(1, 3) + ([] if rank == culprit else [waiting(4), waiting(5), waiting(6)])


def dead(culprit, size):
    return lambda rank: None if rank == culprit else [*ring(1, 3), waiting(4)]


def wrapped(culprit, size):
    """Rings that dropped their oldest entries, each another number of them."""
    return lambda rank: (
        ring(90 + rank % 7, 99, record_id=17) + ([] if rank == culprit else [waiting(100, record_id=18)])
    )


def other_operation(culprit, size):
    return lambda rank: [*ring(1, 3), waiting(4, operation="broadcast" if rank == culprit else "all_reduce")]


def other_shape(culprit, size):
    return lambda rank: [*ring(1, 3), waiting(4, input_sizes=[[7 if rank == culprit else 8]])]


def other_dtype(culprit, size):
    return lambda rank: [*ring(1, 3), waiting(4, input_dtypes=["Half" if rank == culprit else "Float"])]


def skipped(culprit, size):
    def entries(rank):
        calls = ["all_reduce", "all_gather", "barrier", "broadcast", "all_reduce"]
        if rank == culprit:
            del calls[1]
        return [waiting(n, operation=call, input_sizes=[[4]]) for n, call in enumerate(calls, 1)]

    return entries


def alone(culprit, size):
    def entries(rank):
        calls = ["all_reduce", *(["barrier"] if rank == culprit else []), "all_gather", "broadcast"]
        return [waiting(n, operation=call, input_sizes=[[4]]) for n, call in enumerate(calls, 1)]

    return entries


def in_subgroup(culprit, size):
    """The culprit's neighbour waits for it in their own group, and everybody for both of them."""

    def entries(rank):
        if rank == culprit:
            return ring(1, 3)
        return [*ring(1, 3), waiting(5, group="1") if rank == culprit ^ 1 else waiting(4)]

    return entries


def other_order(culprit, size):
    """The culprit comes first to the group of its pair, and everybody else first to the default group."""
    return lambda rank: [*ring(1, 3), waiting(1, group="1") if rank == culprit else waiting(4)]


def other_order_ahead(culprit, size):
    """The same without waiting: every rank has issued both, and the devices wait for each other."""

    def entries(rank):
        here, there = waiting(4), waiting(1, group="1")
        if rank in (culprit, culprit ^ 1):
            return [*ring(1, 3), *((there, here) if rank == culprit else (here, there))]
        return [*ring(1, 3), here]

    return entries


def pair(culprit, size):
    return {"g1": sorted((culprit, culprit ^ 1))}


def never_sent(culprit, size):
    receiver = (culprit + 1) % size
    return lambda rank: (
        ring(1, 3) + ([half("recv", rank, culprit, 1, pending=True)] if rank == receiver else [])
    )


def never_received(culprit, size):
    sender = (culprit - 1) % size

    def entries(rank):
        if rank == sender:
            return [*ring(1, 3), half("send", rank, culprit, 1), half("send", rank, culprit, 2, pending=True)]
        return ring(1, 3) + ([half("recv", rank, sender, 1)] if rank == culprit else [])

    return entries


def exchange_left_out(culprit, size):
    """All exchange with both neighbours in a batch, a second time without the culprit; all but it are in a barrier."""

    def entries(rank):
        left, right = (rank - 1) % size, (rank + 1) % size
        first = batch([half("send", rank, right, 1), half("recv", rank, left, 1)])
        if rank == culprit:
            return first
        halves = [half("send", rank, right, 2), half("recv", rank, left, 2)]
        stuck = culprit in (left, right)
        return [*first, *batch(halves, pending=stuck), *([] if stuck else [waiting(1)])]

    return entries


FAULTS = {
    "a rank is missing": Fault("DD301", missing, "rank {} did not join all_reduce 4 of the default group"),
    "a rank is behind": Fault("DD301", behind, "rank {} did not join all_reduce 4 of the default group"),
    "a rank left no dump": Fault("DD301", dead, "rank {} left no dump"),
    "rings have wrapped": Fault("DD301", wrapped, "rank {} did not join all_reduce 100"),
    "another operation": Fault("DD302", other_operation, "rank {} called broadcast of Float [5120]"),
    "another shape": Fault("DD302", other_shape, "rank {} called all_reduce of Float [7]"),
    "another dtype": Fault("DD302", other_dtype, "rank {} called all_reduce of Half [5120]"),
    "one is skipped": Fault("DD303", skipped, "rank {} skipped all_gather of Float [4]"),
    "one is called alone": Fault("DD303", alone, "only rank {} called barrier of Float [4]"),
    "missing in a subgroup": Fault("DD301", in_subgroup, "rank {} did not join", pair),
    "groups in another order": Fault("DD302", other_order, "rank {} waits in all_reduce 1 of group 1", pair),
    "groups in another order, ahead": Fault("DD302", other_order_ahead, "rank {} waits in", pair),
    "a send that never came": Fault("DD301", never_sent, "rank {} did not send to rank"),
    "a receive that never came": Fault("DD301", never_received, "rank {} did not receive from rank"),
    "an exchange left out": Fault("DD301", exchange_left_out, "rank {} did not"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("size", SIZES)
def test_the_planted_rank_is_named(size, fault):
    for culprit in (0, size * 3 // 5, size - 1) if size < 100 else (size * 3 // 5,):
        found = diagnosis_of_dumps(job(size, fault.entries(culprit, size), **fault.groups(culprit, size)))
        assert found is not None
        assert (found.code, found.culprits) == (fault.code, (culprit,)), found.headline
        assert fault.says.format(culprit) in found.headline
        assert culprit not in found.waiting or fault.code != "DD301"


@pytest.mark.parametrize("size", SIZES)
def test_a_circle_of_groups_is_told_with_all_who_stand_in_it(size):
    """Three groups of a third each, and every third waits in the group of its own and the next one."""
    third = size // 3
    sides = [range(n * third, (n + 1) * third) for n in range(3)]
    groups = {f"g{n + 1}": [*sides[n], *sides[(n + 1) % 3]] for n in range(3)}

    def entries(rank):
        return [*ring(1, 3), *([waiting(1, group=str(rank // third + 1))] if rank < 3 * third else [])]

    found = diagnosis_of_dumps(job(size, entries, **groups))
    assert found is not None
    assert found.code == "DD302"
    assert len({rank // third for rank in found.culprits}) == 3
    assert "wait for each other in a circle" in found.headline


@pytest.mark.parametrize("size", SIZES)
def test_groups_made_in_another_order_are_told_by_their_members(size):
    """The culprit takes group 1 for that of the lower half, the others for that of the even ranks."""
    culprit = 0
    dumps = job(size, lambda rank: [*ring(1, 3), waiting(1, group="1")], g1=range(0, size, 2))
    own = job(size, lambda rank: [*ring(1, 3), waiting(1, group="1")], g1=range(size // 2))
    found = diagnosis_of_dumps({**dumps, culprit: own[culprit]})
    assert found is not None
    assert (found.code, found.culprits) == ("DD309", (culprit,))
    assert found.headline.startswith("group 1 is of")
    assert "0, 2, 4, 6" in found.headline
    assert len(found.headline) < 250


@pytest.mark.parametrize("size", SIZES)
def test_two_receives_that_face_each_other(size):
    found = diagnosis_of_dumps(
        job(
            size,
            lambda rank: [
                *ring(1, 3),
                *([half("recv", rank, 1 - rank, 1, pending=True)] if rank < 2 else []),
            ],
        )
    )
    assert found is not None
    assert (found.code, found.culprits) == ("DD302", (0, 1))
    assert (
        found.headline
        == "rank 0 waits in recv from rank 1, and rank 1 in recv from rank 0, each for the other"
    )


def test_a_send_and_a_receive_of_different_sizes():
    found = diagnosis_of_dumps(
        job(
            4,
            lambda rank: [
                *ring(1, 3),
                *(
                    [half("send", 0, 1, 1, pending=True, input_sizes=[[8]])]
                    if rank == 0
                    else [half("recv", 1, 0, 1, pending=True, input_sizes=[[4]])]
                    if rank == 1
                    else []
                ),
            ],
        )
    )
    assert found is not None
    assert (found.code, found.culprits) == ("DD302", ())
    assert found.headline == "rank 1 called recv of Float [4] where rank 0 called send of Float [8]"


@pytest.mark.parametrize("size", SIZES)
def test_a_pipeline_that_works_blames_nobody(size):
    def entries(rank):
        received = [half("recv", rank, rank - 1, n) for n in range(1, 4)] if rank else []
        sent = [half("send", rank, rank + 1, n + 3) for n in range(1, 4)] if rank < size - 1 else []
        return [*received, *sent, *batch([half("send", rank, rank ^ 1, 9), half("recv", rank, rank ^ 1, 9)])]

    assert diagnosis_of_dumps(job(size, entries)) is None


def test_coalesced_collectives_are_one_and_complete_together():
    def entries(rank):
        parts = [entry(2, state="scheduled", retired=False, input_sizes=[[n]]) for n in range(3)]
        return [*ring(1, 1), *parts, entry(2, operation="allreduce_coalesced"), entry(3)]

    assert diagnosis_of_dumps(job(8, entries)) is None


def test_split_groups_that_share_a_name_are_groups_of_their_own():
    halves = {rank: range(4) if rank < 4 else range(4, 8) for rank in range(8)}
    dumps = {}
    for rank in range(8):
        held = [*ring(1, 3), *ring(1, 2, group="1"), *([waiting(3, group="1")] if rank in (4, 5, 6) else [])]
        dumps[rank] = job(8, lambda _, held=held: held, g1=halves[rank])[rank]
    found = diagnosis_of_dumps(dumps)
    assert found is not None
    assert (found.code, found.culprits) == ("DD301", (7,))
    assert found.headline == "rank 7 did not join all_reduce 3 of group 1, in which ranks 4-6 wait"


def test_the_line_of_the_script_is_told_for_who_waits_and_where_the_culprit_was_last():
    found = diagnosis_of_dumps(job(4, missing(2, 4)))
    assert found is not None
    assert (found.where.file, found.where.line, found.where.function) == ("/jobs/train.py", 88, "train_step")
    assert [(one.ranks, one.text) for one in found.evidence] == [
        ((0, 1, 3), "waits in all_reduce 4 of the default group at /jobs/train.py:88"),
        ((2,), "came last to all_reduce 3 of the default group at /jobs/train.py:88"),
    ]


def test_shapes_of_as_many_elements_can_meet():
    assert diagnosis_of_dumps(job(4, lambda rank: ring(1, 3, input_sizes=[[4, 2] if rank else [8]]))) is None


def test_gloo_counts_receives_too_so_its_count_says_nothing_of_collectives():
    dumps = job(4, lambda rank: ring(1, 3) + ([waiting(4)] if rank else []))
    late = dumps[0].groups["0"]
    dumps[0].groups["0"] = type(late)(late.name, late.description, (), enqueued=9)
    found = diagnosis_of_dumps(dumps)
    assert found is not None
    assert found.culprits == (0,)


def test_a_group_that_only_its_entries_describe():
    said = dump([*ring(1, 3), waiting(4)], {"0": range(2)})
    said["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}  # as gloo has it
    found = diagnosis_of_dumps({1: reduce(said, 1, Path("rank_1")), 0: job(2, lambda rank: ring(1, 3))[0]})
    assert found is not None
    assert found.headline == "rank 0 did not join all_reduce 4 of the default group, in which rank 1 waits"
    assert found.evidence[1].text.startswith("waits in all_reduce 4 of the default group")


def test_a_mismatch_behind_a_rank_that_never_came_is_not_the_cause():
    """The others issued ahead, and two of them parted only after the collective to which rank 3 never came."""

    def entries(rank):
        if rank == 3:
            return ring(1, 3)
        return [
            *ring(1, 3),
            waiting(4),
            waiting(5, operation="barrier" if rank == 1 else "all_reduce"),
            waiting(6),
        ]

    found = diagnosis_of_dumps(job(8, entries))
    assert found is not None
    assert (found.code, found.culprits) == ("DD301", (3,))


def test_a_mismatch_in_a_group_that_went_on_does_not_hide_who_keeps_another_waiting():
    def entries(rank):
        went_on = entry(1, group="1", operation="reduce" if rank == 1 else "all_reduce")
        return [*ring(1, 3), went_on, *([] if rank == 2 else [waiting(4)])]

    found = diagnosis_of_dumps(job(4, entries, g1=range(4)))
    assert found is not None
    assert (found.code, found.culprits) == ("DD301", (2,))
