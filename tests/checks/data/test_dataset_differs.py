from ddpdoctor.model import Source
from ddpdoctor.recorder.events.data import Sampler
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import RANDOM, drawing
from tests.support.recordings import recorded, replace, where


def dataset(content_of, samples_of=lambda rank: 8, replicas=None, sampler=None, world_size=2):
    def change(rank, one):
        size = replicas or world_size
        own = sampler or Sampler("DistributedSampler", True, rank % size, size)
        loader = {"content": content_of(rank), "samples": samples_of(rank)}
        made = drawing(one, range(rank % size, 8, size), sampler=own, loader=loader)
        return replace(made, host=f"node{rank // size}")

    return recorded(world_size, change)


def test_content_that_differs():
    finding = only_finding("DD111", Source.RUN, dataset(lambda rank: f"content {rank}"))
    assert finding.headline == ("the 8 samples of TensorDataset differ between ranks 0-1 in content or order")
    assert finding.where == where(40)
    assert finding.evidence[1].text == "content content 1"


def test_one_dataset_behind_two_loaders_is_one_finding():
    def two_loaders(rank, recording):
        (loader,), (drawn,) = recording.loaders, recording.passes
        second, again = replace(loader, index=1, at=where(41)), replace(drawn, loader=1)
        return replace(recording, loaders=(loader, second), passes=(drawn, again))

    trace = dataset(lambda rank: f"content {rank}")
    trace = replace(
        trace,
        ranks=tuple(replace(rank, recording=two_loaders(rank.rank, rank.recording)) for rank in trace.ranks),
    )
    assert only_finding("DD111", Source.RUN, trace).where == where(40)


def test_lengths_that_differ():
    finding = only_finding("DD111", Source.RUN, dataset(lambda rank: None, lambda rank: 8 + rank))
    assert finding.headline == "TensorDataset has 8 samples on rank 0 and 9 on rank 1"


def test_one_content_passes():
    said = passed("DD111", Source.RUN, dataset(lambda rank: "c0ffee"))
    assert said.text == "TensorDataset has the same 8 samples on every rank"


def test_content_that_was_not_seen_is_skipped():
    assert "cannot be compared" in skipped("DD111", Source.RUN, recorded()).reason


def test_data_of_each_ranks_own_without_a_sampler_is_right():
    trace = dataset(lambda rank: f"content {rank}", sampler=RANDOM)
    assert "no sampler divides" in skipped("DD111", Source.RUN, trace).reason


def test_a_sampler_of_one_replica_over_data_of_each_ranks_own_is_right():
    own = Sampler("DistributedSampler", True, 0, 1)
    skipped("DD111", Source.RUN, dataset(lambda rank: f"content {rank}", sampler=own))


def test_data_of_each_nodes_own_is_right():
    skipped("DD111", Source.RUN, dataset(lambda rank: f"node {rank // 2}", replicas=2, world_size=4))


def test_ranks_of_a_node_that_differ_are_not():
    only_finding("DD111", Source.RUN, dataset(lambda rank: f"content {rank}", replicas=2, world_size=4))
