from ddpdoctor.model import Level, Source
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import replace, where
from tests.support.training import each_step, forward


def normalising(batch, layers=2, nproc=2):
    return each_step(
        lambda rank, own: replace(
            own, forwards=(forward(own.time + 0.2, batch=batch(own.index), batch_norms=layers),)
        ),
        nproc,
    )


def test_statistics_of_two_samples():
    finding = only_finding("DD220", Source.RUN, normalising(lambda index: 2))
    assert finding.level is Level.WARN
    assert finding.headline == "2 BatchNorm layers take their statistics from 2 samples on each rank"
    assert finding.where == where(30)


def test_one_layer_takes_its_own():
    finding = only_finding("DD220", Source.RUN, normalising(lambda index: 1, layers=1))
    assert finding.headline == "1 BatchNorm layer takes its statistics from 1 sample on each rank"


def test_a_short_last_batch_is_nothing():
    assert passed("DD220", Source.RUN, normalising(lambda index: 2 if index == 3 else 16)).text == (
        "BatchNorm sees 16 samples on each rank"
    )


def test_frozen_statistics_and_one_rank_are_skipped():
    assert "no BatchNorm" in skipped("DD220", Source.RUN, normalising(lambda index: 2, layers=0)).reason
    assert (
        skipped("DD220", Source.RUN, normalising(lambda index: 2, nproc=1)).reason
        == "one rank has the whole batch"
    )
