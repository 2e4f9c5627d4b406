"""Which passes of ranks belong together."""

import pytest

from ddpdoctor.recorder.events.data import Loader
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.loading import training_rounds
from tests.support.recordings import recorded, replace, where


@pytest.mark.parametrize(
    ("samples", "together"),
    [
        pytest.param({0: (8, 16, 32), 1: (32, 8, 16)}, {(0, 1), (1, 2), (2, 0)}, id="tasks in any order"),
        pytest.param(
            {0: (8, 16, 16, 32), 1: (8, 8, 16, 32)}, {(0, 0), (2, 2), (3, 3)}, id="levels of their own"
        ),
        pytest.param({0: (8, 8), 1: (8, 8, 8)}, {(0, 0), (1, 1)}, id="one epoch more"),
    ],
)
def test_loaders_that_are_made_for_each_pass(samples, together):
    def change(rank, recording):
        numbered = list(enumerate(samples[rank]))
        loaders = tuple(Loader(i, where(40), "Levels", count, content="abc", made=i) for i, count in numbered)
        passes = tuple(
            Pass(
                i, 0, where(45), 2.0 * i, 2.0 * i + 1.9, None, range(count), 2, 2, "exhausted", training=True
            )
            for i, count in numbered
        )
        return replace(recording, loaders=loaders, passes=passes)

    rounds = training_rounds(recorded(change=change).training())
    assert {tuple(loader.index for loader in shared.loaders.values()) for shared in rounds} == together
