import pytest

from ddpdoctor.model import Confidence, Source
from ddpdoctor.recorder.events.training import Collective
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import each_step


def gathering(loss="{rank}", gathered=True, **changes):
    def change(rank, own):
        collective = Collective(
            own.time + 0.3, where(62), "all_gather", None, (8, 6), "float32", requires_grad=True
        )
        backwards = (replace(own.backwards[0], loss=loss.format(rank=rank), gathered=gathered),)
        collective = replace(collective, **changes)
        return replace(own, collectives=(collective,), backwards=backwards)

    def both(rank, one):
        steps = tuple(change(rank, own) for own in one.steps)
        return replace(one, steps=steps, collectives=tuple(c for own in steps for c in own.collectives))

    return recorded(2, both)


def test_features_in_the_loss_of_each_ranks_own_rows():
    finding = only_finding("DD212", Source.RUN, gathering())
    assert finding.headline == "the loss uses features (8x6) from all_gather, which drops their gradient"
    assert finding.where == where(62)
    assert finding.confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    "changes",
    [
        {"requires_grad": False},
        {"differentiable": True},
        {"shape": ()},
        {"gathered": False},
        {"loss": "of the whole batch"},
        {"time": 99.0},
    ],
    ids=[
        "detached",
        "with gradient",
        "a loss for the log",
        "not in the loss",
        "full loss on every rank",
        "afterwards",
    ],
)
def test_what_is_gathered_rightly(changes):
    passed("DD212", Source.RUN, gathering(**changes))


def test_nothing_gathered_is_skipped():
    trace = each_step(lambda rank, own: own)
    assert skipped("DD212", Source.RUN, trace).reason == "nothing was gathered from all ranks"
