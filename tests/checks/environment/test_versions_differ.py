from ddpdoctor.model import Level, Source
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped


def values(*versions: dict[str, str | None]):
    usual = {"torch": "2.13.0+cpu", "NCCL": None, "CUDA": None, "Python": "3.11.7"}
    return record(
        "variables", [{"host": f"node{i}", "versions": {**usual, **v}} for i, v in enumerate(versions)]
    )


def test_another_torch_is_a_failure_with_the_ranks_that_have_it():
    finding = only_finding("DD014", Source.GROUP, values({}, {"torch": "2.9.1"}, {}))
    assert finding.level is Level.FAIL
    assert finding.headline == "torch differs between ranks: 2.13.0+cpu on ranks 0, 2, 2.9.1 on rank 1"
    assert finding.ranks == (1,)
    assert "node1: torch 2.9.1" in "".join(one.text for one in finding.evidence)


def test_another_python_is_a_warning():
    assert only_finding("DD014", Source.GROUP, values({}, {"Python": "3.12.1"})).level is Level.WARN


def test_nccl_on_one_side_only():
    headline = only_finding("DD014", Source.GROUP, values({}, {"NCCL": "2.27.5"})).headline
    assert headline == "NCCL differs between ranks: none on rank 0, 2.27.5 on rank 1"


def test_equal_versions_pass_and_are_named():
    said = passed("DD014", Source.GROUP, values({}, {}))
    assert said.text == "every rank runs torch 2.13.0+cpu, Python 3.11.7"


def test_one_rank_is_skipped():
    assert skipped("DD014", Source.GROUP, values({})).reason == "needs at least two ranks"
