import pytest

from ddpdoctor.model import Source
from ddpdoctor.trace import Trace
from tests.support.judging import only_finding, passed, skipped
from tests.support.traces import broken, failed, finished, healthy


def run(last_loss: float) -> Trace:
    return Trace((finished(0, last_loss=last_loss), finished(1, last_loss=last_loss)))


def test_a_loss_that_stays_is_found():
    finding = only_finding("DD229", Source.RUN, run(5.6))
    assert finding.headline == "the bundled trainer's loss went from 5.70 to 5.60 in 16 steps"
    assert finding.ranks == (0, 1)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_found(loss):
    finding = only_finding("DD229", Source.RUN, run(loss))
    assert finding.headline == f"the bundled trainer's loss became {loss} in 16 steps"


def test_a_loss_that_falls_passes():
    assert (
        passed("DD229", Source.RUN, healthy()).text == "the trainer's loss fell from 5.70 to 3.20 in 16 steps"
    )


def test_a_broken_run_and_a_script_without_losses_are_skipped():
    trace = broken(finished(0), failed(1, "no such key"))
    assert skipped("DD229", Source.RUN, trace).reason == "rank 1 of the training run broke"
