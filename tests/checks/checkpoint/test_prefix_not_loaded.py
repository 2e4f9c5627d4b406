import pytest

from ddpdoctor import registry
from ddpdoctor.model import Source
from ddpdoctor.recorder.events.files import StateLoad
from ddpdoctor.recorder.events.process import Raised
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where

NAMES = ("weight", "bias")
PREFIXED = ("module.weight", "module.bias")
LOST = StateLoad("module", "Linear", where(70), 20.0, False, 0, NAMES, PREFIXED)


def loading(*loads, **fields):
    return recorded(change=lambda rank, one: replace(one, state_loads=loads, **fields))


def test_names_with_the_wrappers_prefix():
    finding = only_finding("DD403", Source.RUN, loading(LOST))
    assert finding.headline == (
        "load_state_dict loaded 0 of 2 names into Linear on ranks 0-1: the checkpoint's names begin with module."
    )
    assert finding.where == where(70)
    assert [one.text for one in finding.evidence] == [
        "missing: 'weight', 'bias'",
        "unexpected: 'module.weight', 'module.bias'",
    ]


@pytest.mark.parametrize(
    ("missing", "unexpected", "says"),
    [
        (PREFIXED, NAMES, "lack module."),
        (NAMES, ("_orig_mod.weight", "_orig_mod.bias"), "begin with _orig_mod."),
        (NAMES, ("encoder.weight",), "on ranks 0-1"),
    ],
)
def test_other_names(missing, unexpected, says):
    trace = loading(replace(LOST, missing=missing, unexpected=unexpected))
    assert only_finding("DD403", Source.RUN, trace).headline.endswith(says)


def test_an_error_that_ended_the_run():
    message = (
        'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "weight", "bias". \n\t'
        'Unexpected key(s) in state_dict: "module.weight", "module.bias". '
    )
    load = replace(LOST, strict=True, error=f"RuntimeError: {message}")
    raised = Raised("RuntimeError", message, 21.0)
    assert "begin with module." in only_finding("DD403", Source.RUN, loading(load, raised=raised)).headline
    assert registry.by_exception(f"RuntimeError: {message}").code == "DD403"
    passed("DD403", Source.RUN, loading(load))  # caught by the script


def test_a_new_head_is_right():
    passed(
        "DD403",
        Source.RUN,
        loading(replace(LOST, matched=8, missing=("head.weight",), unexpected=("classifier.weight",))),
    )


def test_a_second_attempt_that_loads_is_right():
    passed("DD403", Source.RUN, loading(LOST, replace(LOST, matched=2, missing=(), unexpected=())))


def test_an_empty_checkpoint_is_right():
    passed("DD403", Source.RUN, loading(replace(LOST, unexpected=())))


def test_optimizers_are_not_looked_at():
    assert skipped("DD403", Source.RUN, loading(replace(LOST, kind="optimizer"))).reason == (
        "no model's state was loaded"
    )
