from ddpdoctor.model import Source
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped


def value(batches, ran=-1, difference=None):
    return {"batches": batches, "ran": batches if ran == -1 else ran, "difference": difference}


def test_join_that_gets_through_passes():
    said = passed("DD106", Source.GROUP, record("uneven", [value(4), value(3), value(3)]))
    assert said.text == "Join carries ranks with 4 and 3 batches to the end"


def test_join_that_drops_batches():
    finding = only_finding("DD106", Source.GROUP, record("uneven", [value(4, ran=3), value(3)]))
    assert finding.headline == "rank 0 ran 3 of its 4 batches under Join"


def test_join_that_leaves_replicas_different():
    different = value(3, difference={"tensor": "0.weight"})
    finding = only_finding("DD106", Source.GROUP, record("uneven", [value(4), different]))
    assert finding.headline == "the weights of rank 1 differ from rank 0's after training under Join"


def test_another_cause_is_reported_there():
    group = record(
        "uneven",
        [value(4), value(3, difference={})],
        also={"weights": [{"difference": None}, {"difference": {"when": "after the wrap"}}]},
    )
    assert skipped("DD106", Source.GROUP, group).reason == "replicas differ (DD206)"
    refused = record("uneven", [value(4, ran=None), value(3, ran=None)])
    assert "does not count the ranks" in skipped("DD106", Source.GROUP, refused).reason


def test_one_rank_is_skipped():
    assert "two ranks" in skipped("DD106", Source.GROUP, record("uneven", [value(4)])).reason
