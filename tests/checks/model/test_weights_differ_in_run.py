"""DD206 on a training run."""

from ddpdoctor.model import Source
from ddpdoctor.trace import Trace
from tests.support.judging import only_finding, passed, skipped
from tests.support.traces import broken, failed, finished, healthy

DIFFERENCE = {"tensor": "head.1.bias", "element": 7, "own": 1.25, "rank_0": 0.25}


def test_the_rank_that_differs_is_named_with_tensor_element_and_values():
    trace = Trace((finished(0), finished(1), finished(2, weights="c3d4", difference=DIFFERENCE)))
    finding = only_finding("DD206", Source.RUN, trace)
    assert finding.headline == "the weights of rank 2 differ from rank 0's after the training run"
    assert finding.ranks == (2,)
    assert [(one.text, one.ranks) for one in finding.evidence] == [
        ("head.1.bias[7] is 1.25, and 0.25 on rank 0", (2,)),
        ("weights a1b2", (0, 1)),
        ("weights c3d4", (2,)),
    ]


def test_a_broadcast_that_hides_the_difference_is_no_pass():
    finding = only_finding("DD206", Source.RUN, Trace((finished(0), finished(1, weights="c3d4"))))
    assert "their checksums do" in finding.evidence[0].text


def test_equal_weights_pass():
    assert passed("DD206", Source.RUN, healthy()).text == (
        "after the training run, the weights of ranks 0-1 are equal to the bit"
    )


def test_one_rank_is_skipped():
    assert skipped("DD206", Source.RUN, healthy(1)).reason == "needs at least two ranks"


def test_a_broken_run_is_skipped():
    trace = broken(finished(0), failed(1, "no such key"))
    assert skipped("DD206", Source.RUN, trace).reason == "rank 1 of the training run broke"
