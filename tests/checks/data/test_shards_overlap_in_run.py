"""DD104 on a training run."""

from random import Random

import pytest

from ddpdoctor.model import Source, Where
from ddpdoctor.recorder.events.data import Sampler
from ddpdoctor.recorder.events.training import Collective, Forward
from ddpdoctor.recorder.patches.calls import Seeded
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import RANDOM, drawing
from tests.support.recordings import recorded, replace, step, where


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
    assert "each rank divides a different order" in finding.why
    assert "seed=args.seed" in finding.fix


def test_set_epoch_on_one_rank_only():
    trace = divided((0, 1, 2, 3), (2, 3, 4, 5), samples=8, epochs=(1, 0))
    finding = only_finding("DD104", Source.RUN, trace)
    assert "their samplers are in different epochs" in finding.why
    assert "sampler.set_epoch(epoch)" in finding.fix
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


OWN_ORDER = """\
import random; from glob import glob; import torch.distributed as dist; from torch.utils.data import DataLoader
names, rank, world_size = read(), dist.get_rank(), dist.get_world_size()
random.shuffle(names)
part = Images(names[rank::world_size])
loader = DataLoader(part, batch_size=4, shuffle=True)
"""


@pytest.fixture
def hand_cut(tmp_path):
    """Makes a run of ranks that each have a dataset of their own part, which shows its samples by their content."""
    made = []

    def make(parts, script=OWN_ORDER, sampler=RANDOM, seeds=None, indices=None, **changes):
        made.append(tmp_path / f"train_{len(made)}.py")
        file = made[-1]
        file.write_text(script)
        lines = script.splitlines()
        at = Where(str(file), next(n for n, line in enumerate(lines, 1) if "DataLoader(" in line))

        def change(rank, one):
            part = parts[rank]
            loader = {"at": at, "samples": len(part), "content": f"part {rank}", "batch_size": 8, **changes}
            samples = tuple(f"sample {number}" for number in part[:64])
            order = indices[rank] if indices else range(len(part))
            drawn = drawing(one, order, sampler=sampler, loader=loader, samples=samples, drawn=2)
            seeded = [Seeded(0.0, stream, of(rank), where(1)) for stream, of in (seeds or {}).items()]
            return replace(drawn, script=str(file), record=Record.made(*seeded))

        return recorded(len(parts), change)

    return make


def parts_of(*orders):
    """Every n-th sample of each rank's order."""
    return [order[rank :: len(orders)] for rank, order in enumerate(orders)]


ORDERS = [Random(seed).sample(range(90), 90) for seed in range(3)]


def test_parts_that_ranks_cut_out_of_orders_of_their_own(hand_cut):
    finding = only_finding("DD104", Source.RUN, hand_cut(parts_of(*ORDERS)))
    assert finding.headline == "ranks 0-2 share 23 of the 64 samples of TensorDataset they draw first"
    assert "divide different orders" in finding.why
    assert "random.Random(0).shuffle(files)" in finding.fix
    assert finding.where is not None
    assert finding.where.line == 3
    assert finding.evidence[0].text == "14 of its first 30 samples are on another rank, too"
    assert finding.evidence[-1].text.startswith("DataLoader at")


@pytest.mark.parametrize("unordered", ["names = list(set(names))", "names = glob(folder)"])
def test_parts_of_what_is_listed_in_no_order_are_to_be_sorted(hand_cut, unordered):
    trace = hand_cut(parts_of(*ORDERS), OWN_ORDER.replace("random.shuffle(names)", unordered))
    assert "files = sorted(os.listdir(folder))" in only_finding("DD104", Source.RUN, trace).fix


def test_parts_of_one_order_pass(hand_cut):
    passed("DD104", Source.RUN, hand_cut(parts_of(*[ORDERS[0]] * 3)))


def test_equal_samples_that_the_script_does_not_cut_out_of_its_own_order_pass(hand_cut):
    parts = parts_of(*ORDERS)
    passed(
        "DD104", Source.RUN, hand_cut(parts, OWN_ORDER.replace("random.shuffle", "random.Random(0).shuffle"))
    )
    passed("DD104", Source.RUN, hand_cut(parts, OWN_ORDER.replace("[rank::world_size]", "[:30]")))


def test_samples_drawn_with_replacement_out_of_parts_pass(hand_cut):
    passed("DD104", Source.RUN, hand_cut(parts_of(*ORDERS), sampler=replace(RANDOM, replacement=True)))


def test_a_dataset_that_chooses_its_samples_passes(hand_cut):
    passed("DD104", Source.RUN, hand_cut(parts_of(*ORDERS), ignores_index=True))


def test_a_common_seed_of_the_stream_makes_one_order(hand_cut):
    parts = parts_of(*ORDERS)
    passed("DD104", Source.RUN, hand_cut(parts, seeds={"python": lambda rank: 7}))
    only_finding("DD104", Source.RUN, hand_cut(parts, seeds={"python": lambda rank: 7 + rank}))
    only_finding("DD104", Source.RUN, hand_cut(parts, seeds={"torch": lambda rank: 7}))


@pytest.mark.parametrize("is_cut", [True, False])
def test_shuffled_subsets_overlap_where_they_are_cut_out_of_an_order(hand_cut, is_cut):
    script = OWN_ORDER if is_cut else OWN_ORDER.replace("[rank::world_size]", "[:30]")
    parts = parts_of(*ORDERS)
    trace = hand_cut(parts, script, content="one dataset", indices=parts)
    if not is_cut:
        passed("DD104", Source.RUN, trace)
        return
    finding = only_finding("DD104", Source.RUN, trace)
    assert "each rank takes its part from a different order" in finding.why
    assert finding.where is not None
    assert finding.where.line == 3


def fed_by_hand(input_of, collectives=()):
    """Ranks that feed these inputs in eight steps, without a DataLoader."""

    def change(rank, one):
        steps = tuple(
            step(
                i,
                forwards=(Forward(i + 0.2, where(48), 0, input=str(input_of(i, rank)), batch=4),),
                collectives=collectives,
            )
            for i in range(8)
        )
        return replace(one, passes=(), loaders=(), steps=steps)

    return recorded(2, change)


def test_a_rank_that_reads_on_into_what_the_next_one_has_read():
    finding = only_finding("DD104", Source.RUN, fed_by_hand(lambda i, rank: i + rank))
    assert finding.headline == "rank 0 trains on the batches of rank 1, 1 batch later"
    assert (finding.ranks, finding.where) == ((0, 1), where(48))


@pytest.mark.parametrize(
    "input_of",
    [
        pytest.param(lambda i, rank: 2 * i + rank, id="past the batches of all"),
        pytest.param(lambda i, rank: i + 4 * rank, id="ranks that begin far apart and each read all"),
        pytest.param(lambda i, rank: (i + rank) % 2, id="two batches over and over"),
        pytest.param(lambda i, rank: i + rank if i < 3 else (i, rank), id="a few by accident"),
    ],
)
def test_batches_by_hand_that_are_right(input_of):
    passed("DD104", Source.RUN, fed_by_hand(input_of))


def test_batches_that_ranks_send_to_each_other():
    sent = Collective(0.5, where(47), "all_gather")
    passed("DD104", Source.RUN, fed_by_hand(lambda i, rank: i + rank, (sent,)))
