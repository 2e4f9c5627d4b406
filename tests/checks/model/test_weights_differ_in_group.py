"""DD206 in the live group."""

from ddpdoctor.model import Source
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped

DIFFERENCE = {"when": "after the wrap", "tensor": "0.weight", "element": 3, "own": 0.5, "rank_0": 0.25}
EQUAL = {"difference": None, "gradient": None, "tensors": 9}
WRONG = {
    "op": "all_reduce sum",
    "dtype": "float32",
    "bytes": 4,
    "wrong": {"index": 0, "expected": 2, "got": 3},
}


def test_the_first_tensor_and_element_are_named():
    different = {**EQUAL, "difference": DIFFERENCE}
    finding = only_finding("DD206", Source.GROUP, record("weights", [EQUAL, EQUAL, different]))
    assert (
        finding.headline == "the weights of rank 2 differ from rank 0's after the wrap: 0.weight[3] by 0.25"
    )
    assert finding.ranks == (2,)


def test_equal_replicas_pass():
    assert (
        "2 replicas from different seeds equal"
        in passed("DD206", Source.GROUP, record("weights", [EQUAL] * 2)).text
    )


def test_one_rank_is_skipped():
    assert "two ranks" in skipped("DD206", Source.GROUP, record("weights", [EQUAL])).reason


def test_a_wrong_all_reduce_is_reported_once():
    different = {**EQUAL, "difference": DIFFERENCE}
    group = record("weights", [EQUAL, different], also={"collectives": [{"rows": [WRONG]}] * 2})
    assert skipped("DD206", Source.GROUP, group).reason == "all_reduce sum gives a wrong answer"
