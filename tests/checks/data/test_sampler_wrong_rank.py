import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.data import Sampler
from ddpdoctor.recorder.events.process import GroupEvent, Raised
from ddpdoctor.recorder.events.training import Collective
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import RANDOM, drawing
from tests.support.recordings import recorded, recording, replace, trace, where


def claiming(*places, world_size=None, change=None, content_of=lambda rank: "c0ffee"):
    """Samplers that divide as these ranks of so many."""

    def of(rank, one):
        own, replicas = places[rank]
        sampler = Sampler("DistributedSampler", True, own, replicas, at=where(38))
        drawn = drawing(one, range(own, 16, replicas), sampler=sampler, loader={"content": content_of(rank)})
        return change(rank, drawn) if change else drawn

    return recorded(len(places), of)


def test_a_local_rank_where_the_rank_belongs():
    finding = only_finding("DD105", Source.RUN, claiming((0, 4), (1, 4), (0, 4), (1, 4)))
    assert finding.headline == (
        "the DistributedSampler of rank 2 uses rank 0 of 4, and it is rank 2 of 4 in its group"
    )
    assert finding.ranks == (2, 3)
    assert finding.where == where(38)
    assert "ranks 0-3 train on the same samples as another rank" in finding.why


def test_the_gpus_of_one_node_for_all_ranks():
    finding = only_finding("DD105", Source.RUN, claiming((0, 2), (1, 2), (0, 2), (1, 2)))
    assert finding.ranks == (0, 1, 2, 3)


def test_a_rank_asked_for_before_there_is_a_group():
    finding = only_finding("DD105", Source.RUN, claiming((0, 1), (0, 1)))
    assert "of rank 0 uses rank 0 of 1, and it is rank 0 of 2 in its group" in finding.headline


def test_too_many_parts():
    finding = only_finding("DD105", Source.RUN, claiming((0, 4), (1, 4)))
    assert "do not make up the dataset" in finding.why


def test_the_groups_own_numbers_pass():
    said = passed("DD105", Source.RUN, recorded())
    assert said.text == "DistributedSampler divides among 2 ranks, each with its own number"


def test_nodes_with_data_of_their_own_are_right():
    trace = claiming((0, 2), (1, 2), (0, 2), (1, 2), content_of=lambda rank: f"node {rank // 2}")
    passed("DD105", Source.RUN, trace)


def test_a_data_parallel_group_of_a_mesh_is_right():
    def wrapped(rank, one):
        return replace(one, wrappers=(replace(one.wrappers[0], ranks=(rank % 2, rank % 2 + 2)),))

    passed("DD105", Source.RUN, claiming((0, 2), (0, 2), (1, 2), (1, 2), change=wrapped))


def test_a_group_that_was_made_for_it_is_right():
    def grouped(rank, one):
        made = GroupEvent("new_group", 1.0, where(22), rank=rank // 2, size=2, ranks=(rank % 2, rank % 2 + 2))
        return replace(one, groups=(*one.groups, made))

    passed("DD105", Source.RUN, claiming((0, 2), (0, 2), (1, 2), (1, 2), change=grouped))


@pytest.mark.parametrize("names", [("data", "tensor"), ("n1", "n2"), ("tensor", "dp_like")])
@pytest.mark.parametrize("by_data", [True, False])
def test_a_dimension_of_a_mesh_is_one_of_data_where_gradients_are_averaged_over_it(names, by_data):
    def meshed(rank, one):
        ranks = ((rank % 2, rank % 2 + 2), (rank // 2 * 2, rank // 2 * 2 + 1))
        made = [
            GroupEvent("new_group", 1.0, where(22), rank=own.index(rank), size=2, ranks=own, mesh=name)
            for own, name in zip(ranks, names, strict=True)
        ]
        call = Collective(1.5, where(49), "all_reduce", group=ranks[0], gradient_of="weight")
        return replace(one, wrappers=(), groups=(*one.groups, *made), collectives=(call,))

    places = ((0, 2), (0, 2), (1, 2), (1, 2)) if by_data else ((0, 2), (1, 2), (0, 2), (1, 2))
    (passed if by_data else only_finding)("DD105", Source.RUN, claiming(*places, change=meshed))


def test_no_distributed_sampler_is_skipped():
    trace = recorded(change=lambda rank, one: drawing(one, (0, 1, 2), sampler=RANDOM))
    assert "no sampler that divides" in skipped("DD105", Source.RUN, trace).reason


def test_a_rank_that_the_sampler_refuses():
    said = Raised("ValueError", "Invalid rank 1, rank should be in the interval [0, 0]", 1.0, at=where(38))
    trace = recorded(change=lambda rank, one: replace(one, raised=said) if rank else one)
    finding = only_finding("DD105", Source.RUN, trace)
    assert finding.headline == "DistributedSampler rejects the rank of rank 1: num_replicas is too small"
    assert (finding.where, finding.ranks) == (where(38), (1,))


def some_of(ranks, world_size, place):
    """A few ranks of a job that were recorded, of another host or real ones, and the place each sampler takes."""

    def of(rank):
        own, replicas = place(rank)
        sampler = Sampler("DistributedSampler", True, own, replicas, at=where(38))
        return drawing(recording(rank, world_size), range(own, 8 * world_size, replicas), sampler=sampler)

    return trace({rank: of(rank) for rank in ranks}, world_size=world_size)


def test_a_rank_has_its_place_among_those_that_were_not_recorded_too():
    passed("DD105", Source.RUN, some_of((4, 5, 6, 7), 8, lambda rank: (rank, 8)))
    finding = only_finding("DD105", Source.RUN, some_of((0, 8, 63), 64, lambda rank: (rank % 8, 8)))
    assert finding.headline == (
        "the DistributedSampler of rank 0 uses rank 0 of 8, and it is rank 0 of 64 in its group"
    )
