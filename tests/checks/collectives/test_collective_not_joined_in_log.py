import pytest

from ddpdoctor.model import Confidence, Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import explained, log, raised, summary
from tests.support.waits import sizes, status, stopped, wait


def test_the_rank_that_did_not_come_is_named_and_not_those_that_waited():
    text = sizes(4) + wait(0) + wait(1) + wait(3)
    finding = only_finding("DD301", Source.LOG, log(text))
    assert (
        finding.headline == "rank 2 did not join ALLREDUCE number 12, in which ranks 0-1, 3 waited for 600 s"
    )
    assert (finding.ranks, finding.confidence) == ((2,), Confidence.LIKELY)
    assert explained(text)[0] == finding


def test_the_rank_that_is_behind_is_named():
    text = wait(0, 13) + wait(1, 12) + status(0, 13, 20, 12) + status(1, 12, 12, 11)
    finding = only_finding("DD301", Source.LOG, log(text))
    assert finding.headline == (
        "rank 1 did not join ALLREDUCE number 13, in which rank 0 waited for 600 s; it waited in ALLREDUCE number 12"
    )


def test_the_ranks_that_a_monitored_barrier_missed_are_named():
    text = raised(0, "RuntimeError", "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 30000 ms")
    finding = only_finding("DD301", Source.LOG, log(text))
    assert finding.headline == "ranks 1-2 did not join a collective, in which rank 0 waited"


def test_an_exception_of_a_rank_outranks_the_wait_for_it():
    text = sizes(2) + raised(1, "ValueError", "no label") + wait(0) + summary(1)
    assert [one.code for one in explained(text)] == ["DD304"]


def test_ranks_that_all_wait_at_one_place_blame_nobody():
    skipped("DD301", Source.LOG, log(sizes(2) + wait(0) + wait(1)))


def test_a_rank_between_those_that_waited_is_one_of_the_job():
    text = wait(8) + wait(9) + wait(11) + summary(8, -6)
    assert only_finding("DD301", Source.LOG, log(text)).ranks == (10,)


@pytest.mark.parametrize(
    "text",
    [
        wait(8) + wait(9),
        wait(8) + wait(9) + summary(8, -6),
        sizes(4) + wait(2) + wait(3),
        sizes(4) + wait(0) + wait(1),
    ],
)
def test_ranks_of_another_node_are_not_blamed_for_its_output(text):
    skipped("DD301", Source.LOG, log(text))


def test_ranks_that_speak_are_of_this_output():
    text = sizes(4) + raised(2, "RuntimeError", "Connection closed by peer") + wait(0) + wait(1)
    assert only_finding("DD301", Source.LOG, log(text)).ranks == (2, 3)


def test_who_names_the_missing_rank_knows_more_than_its_peers():
    told = "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0."
    text = raised(1, "RuntimeError", told)
    text += raised(0, "RuntimeError", "[Rank 0]: Rank 2 failed to pass monitoredBarrier in 30 ms") + summary(
        0
    )
    text += stopped(7) + summary(0) + summary(1, pid=8)
    (finding,) = explained(text)
    assert (finding.code, finding.ranks) == ("DD301", (2,))


def dump(rank: int, enqueued: int) -> str:
    return (
        f"[rank{rank}]:[E102 03:04:05 ProcessGroupNCCL.cpp:1415] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received "
        "a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug info. "
        f"Last enqueued NCCL work: {enqueued}, last completed NCCL work: 11.\n"
    )


def test_the_rank_whose_dump_shows_that_it_never_came_is_named():
    text = wait(0) + wait(1) + dump(2, 14) + dump(3, 11)
    assert only_finding("DD301", Source.LOG, log(text)).ranks == (3,)


def test_ranks_whose_dumps_show_that_they_came_are_not():
    assert [one.code for one in explained(wait(0) + dump(1, 14) + summary(0, -6))] == ["DD312"]


@pytest.mark.parametrize(
    ("report", "ranks"),
    [
        (
            "\t   - [5] joined but didn't finish collective #87 (count from 1)\n"
            "\t     [1, 2] finished collective #87, but didn't join collective #88 (count from 1)\n",
            (5,),
        ),
        ("\t - To our best knowledge, ranks [3] are the lagging ranks that caused this timeout. \n", (3,)),
    ],
)
def test_the_ranks_furthest_behind_in_torchs_report_are_named(report, ranks):
    (finding,) = explained(wait(0) + report)
    assert (finding.code, finding.ranks) == ("DD301", ranks)


def test_a_report_that_names_all_ranks_shows_that_all_came():
    report = "\t   - [0, 1] joined but didn't finish collective #12 (count from 1)\n"
    assert [finding.code for finding in explained(wait(0) + wait(1) + report)] == ["DD312"]
