import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.updates import Optimizer
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import KEYS, recorded, replace, where


def beginning(rate, ranks=32, name="AdamW"):
    """A job whose optimizer begins with this learning rate."""

    def of(rank, recording):
        step = recording.steps[0]
        update = replace(step.optimizer_steps[0], hyperparameters=({"lr": rate},))
        steps = (replace(step, optimizer_steps=(update,)), *recording.steps[1:])
        return replace(recording, steps=steps, optimizers=(Optimizer(0, name, KEYS, at=where(50)),))

    return recorded(ranks, of)


def test_a_rate_times_the_ranks():
    finding = only_finding("DD230", Source.RUN, beginning(0.003 * 32))
    assert finding.headline == "the initial learning rate of AdamW is 0.096, 0.003 for each of 32 ranks"
    assert finding.where == where(50)


@pytest.mark.parametrize(
    ("rate", "name"),
    [
        (1e-3 * 32, "AdamW"),  # within what it bears
        (0.01 * 32**0.5, "AdamW"),  # by the square root
        (0.05 * 32, "SGD"),
        (0.1 * 32, "LARS"),  # made for large rates
    ],
)
def test_rates_that_optimizers_bear(rate, name):
    passed("DD230", Source.RUN, beginning(rate, name=name))


def test_few_ranks_do_not_matter():
    assert "16 ranks" in skipped("DD230", Source.RUN, beginning(1.0 * 4, ranks=4)).reason
