from ddpdoctor.model import Source
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped


def row(op="all_reduce sum", wrong=None, **fields):
    return {"op": op, "dtype": "float32", "bytes": 4096, "wrong": wrong, "seconds": 0.001, **fields}


def group(*rows_by_rank):
    return record("collectives", [{"rows": list(rows)} for rows in rows_by_rank])


WRONG = {"index": 7, "expected": 6.0, "got": 7.0}


def test_the_simplest_wrong_operation_is_the_one_finding():
    right, wrong = [row(), row("broadcast")], [row(wrong=WRONG), row("broadcast", wrong=WRONG)]
    finding = only_finding("DD313", Source.GROUP, group(right, wrong, right))
    assert finding.headline == (
        "all_reduce sum of 4 KiB float32 gave rank 1 a wrong answer: element 7 is 7.0, not 6.0, and 1 other case"
    )
    assert finding.ranks == (1,)
    assert [one.text for one in finding.evidence] == [
        "all_reduce sum of 4 KiB float32: element 7 is 7.0, expected 6.0",
        "broadcast of 4 KiB float32: element 7 is 7.0, expected 6.0",
    ]


def test_ranks_with_the_same_wrong_element_are_one_line():
    finding = only_finding("DD313", Source.GROUP, group([row()], [row(wrong=WRONG)], [row(wrong=WRONG)]))
    assert [one.ranks for one in finding.evidence] == [(1, 2)]


def test_a_barrier_that_does_not_hold():
    wrong = row("barrier", {"index": 2, "expected": 1, "got": 0}, dtype="", bytes=0)
    finding = only_finding("DD313", Source.GROUP, group([wrong], [row("barrier", dtype="")]))
    assert finding.headline == "barrier let rank 0 pass before every rank had joined"
    assert finding.evidence[0].text == "barrier ended before rank 2 joined"


def test_right_answers_pass_and_what_the_backend_refuses_is_said():
    rows = [
        row(),
        {"op": "reduce_scatter", "dtype": "float32", "bytes": 1, "unsupported": "no reduce_scatter"},
    ]
    said = passed("DD313", Source.GROUP, group(rows, rows))
    assert said.text == "1 operation of gloo gives the exact answer for float32, bfloat16 and int64"
    assert "no reduce_scatter" in said.evidence[0].text


def test_nothing_offered_is_skipped():
    rows = [{"op": "broadcast", "dtype": "float32", "bytes": 1, "unsupported": "not here"}]
    assert "supports none" in skipped("DD313", Source.GROUP, group(rows)).reason
