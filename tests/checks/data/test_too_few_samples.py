from ddpdoctor.model import Source
from ddpdoctor.recorder.events.data import Sampler
from tests.support.judging import only_finding, passed
from tests.support.loading import drawing
from tests.support.recordings import recorded, replace


def divided(samples, ranks):
    """A dataset that a sampler divides, padding it to one length."""

    def of(rank, recording):
        sampler = Sampler("DistributedSampler", True, rank, ranks, total=-(-samples // ranks) * ranks)
        return drawing(recording, [rank % samples], sampler=sampler, loader={"samples": samples})

    return recorded(ranks, of)


def test_fewer_samples_than_ranks():
    finding = only_finding("DD112", Source.RUN, divided(5, 8))
    assert finding.headline == "TensorDataset has 5 samples for 8 ranks"
    assert "ranks compute the same as others" in finding.why


def test_a_sample_for_each_rank_is_enough():
    passed("DD112", Source.RUN, divided(8, 8))


def test_a_pass_without_a_batch():
    def empty(rank, recording):
        passes = tuple(replace(it, batches=0, drawn=0, training=False) for it in recording.passes)
        return replace(recording, passes=passes, steps=(), step_count=0)

    finding = only_finding("DD112", Source.RUN, recorded(2, empty))
    assert finding.headline == "a training pass over TensorDataset has no batch on ranks 0-1"


def test_one_rank_without_a_batch_is_another_problem():
    def empty(rank, recording):
        if rank == 0:
            return recording
        passes = tuple(replace(it, batches=0, drawn=0, training=False) for it in recording.passes)
        return replace(recording, passes=passes, steps=(), step_count=0)

    passed("DD112", Source.RUN, recorded(2, empty))
    finding = only_finding("DD106", Source.RUN, recorded(2, empty))
    assert finding.ranks == (1,)
