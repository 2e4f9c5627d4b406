from ddpdoctor.model import Source
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped

EQUAL = {"difference": None, "gradient": None, "tensors": 9}
GRADIENT = {"tensor": "0.weight", "element": 5, "got": 0.5, "expected": 0.25}


def test_the_gradient_and_its_reference_are_named():
    wrong = {**EQUAL, "gradient": GRADIENT}
    finding = only_finding("DD228", Source.GROUP, record("weights", [wrong, wrong]))
    assert finding.headline == (
        "DDP's gradient of 0.weight element 5 is 0.5 on ranks 0-1, 0.25 in one process on the same samples"
    )


def test_replicas_that_differ_are_the_cause():
    different = {**EQUAL, "gradient": GRADIENT, "difference": {"when": "after the wrap"}}
    assert (
        skipped("DD228", Source.GROUP, record("weights", [EQUAL, different])).reason
        == "replicas differ (DD206)"
    )


def test_the_right_gradient_passes():
    assert "concatenated batch" in passed("DD228", Source.GROUP, record("weights", [EQUAL])).text
