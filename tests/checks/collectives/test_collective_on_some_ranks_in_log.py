from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import explained, log, summary
from tests.support.waits import sizes, stopped, wait


def test_rank_0_alone_in_a_collective():
    text = wait(0, 8123, "BROADCAST") + stopped(11) + summary(0, -6)
    finding = only_finding("DD303", Source.LOG, log(text))
    assert (
        finding.headline == "only rank 0 waited in BROADCAST number 8123 for 600 s, and no other rank joined"
    )
    assert [one.code for one in explained(text)] == ["DD303"]


def test_few_of_many():
    finding = only_finding("DD303", Source.LOG, log(sizes(8) + wait(0) + wait(4)))
    assert (
        finding.headline
        == "only ranks 0, 4 waited in ALLREDUCE number 12 for 600 s, and no other rank joined"
    )


def test_most_of_them_wait_for_the_others():
    skipped("DD303", Source.LOG, log(sizes(4) + wait(1) + wait(2) + wait(3)))


def test_a_job_of_unknown_size_names_nobody_alone():
    skipped("DD303", Source.LOG, log(wait(0)))
