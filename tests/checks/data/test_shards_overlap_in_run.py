"""DD104 on a training run."""

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.data import Sampler
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import RANDOM, drawing
from tests.support.recordings import recorded, replace, where


def divided(*shards, samples, seeds=(0, 0, 0), name="DistributedSampler", epochs=(0, 0, 0)):
    def change(rank, one):
        sampler = Sampler(name, True, rank, len(shards), seed=seeds[rank], epoch=epochs[rank], at=where(38))
        return drawing(one, shards[rank], sampler=sampler, loader={"samples": samples})

    return recorded(len(shards), change)


def test_seeds_that_differ():
    finding = only_finding("DD104", Source.RUN, divided((0, 1, 2, 3), (2, 3, 4, 5), samples=8, seeds=(0, 1)))
    assert finding.headline == (
        "ranks 0-1 share 2 of the 6 samples they draw in a pass, and 2 samples of TensorDataset are never drawn"
    )
    assert "their samplers have different seeds" in finding.why
    assert finding.where == where(38)
    assert finding.evidence[1].text == "DistributedSampler, seed 1, draws 2, 3, 4, 5"


def test_each_rank_divides_an_order_of_its_own():
    finding = only_finding("DD104", Source.RUN, divided((0, 1, 2), (2, 3, 4), (4, 5, 6), samples=9))
    assert "each rank divides an order of its own" in finding.why
    assert finding.fix.startswith("random.seed(args.seed)")


def test_set_epoch_on_one_rank_only():
    trace = divided((0, 1, 2, 3), (2, 3, 4, 5), samples=8, epochs=(1, 0))
    finding = only_finding("DD104", Source.RUN, trace)
    assert "their samplers are in different epochs" in finding.why
    assert finding.fix.startswith("sampler.set_epoch(epoch)")
    assert finding.explained_by == ("DD103",)


def test_padding_passes():
    passed("DD104", Source.RUN, divided((0, 1, 2), (3, 4, 0), samples=5))


def test_dropping_the_last_samples_passes():
    passed("DD104", Source.RUN, divided((0, 1), (2, 3), samples=5))


def test_a_group_sampler_that_fills_batches_passes():
    passed("DD104", Source.RUN, divided((0, 1, 2, 3), (4, 5, 0, 1), samples=6, name="GroupSampler"))


def test_repeated_augmentation_is_right():
    passed("DD104", Source.RUN, divided((0, 1, 2), (0, 1, 2), (0, 1, 2), samples=9, name="RASampler"))


def test_samples_drawn_with_replacement_are_right():
    passed("DD104", Source.RUN, divided((0, 0, 3, 2), (2, 5, 5, 1), samples=8, name="WeightedSampler"))
    own = replace(RANDOM, replacement=True)
    shards = ((0, 1, 2, 3), (2, 3, 4, 5))
    trace = recorded(change=lambda r, one: drawing(one, shards[r], sampler=own, loader={"samples": 8}))
    passed("DD104", Source.RUN, trace)


def test_a_random_part_for_each_rank_is_right():
    shards = (tuple(range(10)), tuple(range(5, 15)))
    passed("DD104", Source.RUN, divided(*shards, samples=100, name="SubsetRandomSampler"))


def hand_made(*shards):
    """A Subset for each rank, read in order."""

    def change(rank, one):
        sequential = Sampler("SequentialSampler", shuffle=False)
        return drawing(one, shards[rank], sampler=sequential, loader={"samples": len(shards[rank])})

    return recorded(len(shards), change)


def test_subsets_cut_from_orders_of_their_own():
    finding = only_finding("DD104", Source.RUN, hand_made((0, 1, 2, 6), (2, 1, 4)))
    assert "share 2 of the 5 samples" in finding.headline


def test_subsets_that_make_up_the_dataset_pass():
    passed("DD104", Source.RUN, hand_made((0, 2, 4, 6), (1, 3, 5)))


def test_folds_are_left_alone():
    passed("DD104", Source.RUN, hand_made(tuple(range(4, 20)), tuple(range(16))))


def test_datasets_that_differ_are_another_checks():
    def change(rank, one):
        sampler = Sampler("DistributedSampler", True, rank, 2)
        return drawing(
            one, (0, 1, 2, 3), sampler=sampler, loader={"samples": 8, "content": f"content {rank}"}
        )

    passed("DD104", Source.RUN, recorded(change=change))


def test_a_stream_is_skipped():
    trace = recorded(change=lambda rank, one: drawing(one, (), indices=None))
    assert "no DataLoader whose samples have numbers" in skipped("DD104", Source.RUN, trace).reason
