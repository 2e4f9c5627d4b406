import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.data import Sampler
from ddpdoctor.recorder.events.training import DrawnBetween, Forward
from ddpdoctor.recorder.patches.calls import Seeded
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import RANDOM, drawing
from tests.support.recordings import recorded, replace, step, where

SHUFFLED = ((3, 1, 0, 2, 5, 4, 7, 6), (7, 6, 5, 4, 3, 2, 1, 0))
SAME = {"samples": 8, "content": "c0ffee"}


def unsharded(order_of=lambda rank: SHUFFLED[0], *, loader=SAME, sampler=RANDOM, change=None, **fields):
    def of(rank, one):
        own = drawing(one, order_of(rank), sampler=sampler, loader=loader, **fields)
        return change(rank, own) if change else own

    return recorded(change=of)


def test_the_same_order_on_every_rank():
    finding = only_finding("DD101", Source.RUN, unsharded())
    assert finding.headline == (
        "ranks 0-1 all train on the same 8 samples of TensorDataset, in the same order"
    )
    assert finding.ranks == (0, 1)
    assert finding.where == where(40)
    assert finding.evidence[0].text == "sampler RandomSampler, draws 3, 1, 0, 2, 5, 4, ..."


def test_the_whole_dataset_in_an_order_of_each_ranks_own():
    finding = only_finding("DD101", Source.RUN, unsharded(lambda rank: SHUFFLED[rank]))
    assert finding.headline.endswith("all train on the same 8 samples of TensorDataset, in different orders")


def test_equal_batches_stand_for_a_content_that_was_not_seen():
    trace = unsharded(loader={"samples": 8, "content": None}, content=("a", "b"))
    assert "in the same order" in only_finding("DD101", Source.RUN, trace).headline


def test_a_divided_dataset_passes():
    assert (
        passed("DD101", Source.RUN, recorded()).text == "each rank draws its own part of 16 samples in a pass"
    )


def test_equal_samples_drawn_with_replacement_from_one_seed():
    weighted = Sampler("WeightedRandomSampler", replacement=True)
    only_finding("DD101", Source.RUN, unsharded(lambda _: (1, 1, 4, 2, 2, 0, 5, 1), sampler=weighted))


def test_samples_drawn_with_replacement_from_seeds_of_their_own_are_right():
    weighted = Sampler("WeightedRandomSampler", replacement=True)
    orders = ((1, 1, 4, 2, 2, 0, 5, 1), (6, 3, 3, 2, 7, 0, 1, 1))
    passed("DD101", Source.RUN, unsharded(lambda rank: orders[rank], sampler=weighted))


def test_synthetic_data_of_each_ranks_own_is_right():
    def own_content(rank, one):
        return replace(one, loaders=(replace(one.loaders[0], content=f"content {rank}"),))

    passed("DD101", Source.RUN, unsharded(change=own_content))


def test_unseen_content_in_different_orders_proves_nothing():
    orders = lambda rank: SHUFFLED[rank]  # noqa: E731
    passed("DD101", Source.RUN, unsharded(orders, loader={"samples": 8, "content": None}))


def test_equal_samples_by_number_stand_for_a_content_that_was_not_seen():
    def seen(rank, one):
        samples = tuple(f"sample {index}" for index in SHUFFLED[rank])
        return replace(one, passes=tuple(replace(p, samples=samples) for p in one.passes))

    unseen = {"samples": 8, "content": None}
    trace = unsharded(lambda rank: SHUFFLED[rank], loader=unseen, change=seen)
    assert "in different orders" in only_finding("DD101", Source.RUN, trace).headline


def test_samples_made_at_random_by_each_rank_are_right():
    def seen(rank, one):
        samples = tuple(f"sample {index} of {rank}" for index in SHUFFLED[rank])
        return replace(one, passes=tuple(replace(p, samples=samples) for p in one.passes))

    unseen = {"samples": 8, "content": None}
    passed("DD101", Source.RUN, unsharded(lambda rank: SHUFFLED[rank], loader=unseen, change=seen))


def test_one_batch_that_is_overfitted_is_right():
    passed("DD101", Source.RUN, unsharded(lambda _: (0, 1, 2, 3), loader={"samples": 4, "content": "c0ffee"}))
    passed("DD101", Source.RUN, unsharded(drawn=1, ended="left"))


def forwards(count, batch, rank_of=lambda rank: rank):
    def change(rank, one):
        steps = tuple(
            step(
                i, forwards=(Forward(0.2 + i * 0.1, where(48), 0, input=f"{i} {rank_of(rank)}", batch=batch),)
            )
            for i in range(count)
        )
        return replace(one, steps=steps)

    return change


def test_every_nth_batch_of_a_common_loader_is_right():
    passed("DD101", Source.RUN, unsharded(change=forwards(1, 4)))


def test_a_slice_of_each_common_batch_is_right():
    passed("DD101", Source.RUN, unsharded(change=forwards(2, 2)))


def test_a_slice_of_a_batch_that_is_one_sample_of_the_loader_is_right():
    samples = {"samples": 8, "content": "c0ffee", "batch_size": 1}
    passed("DD101", Source.RUN, unsharded(change=forwards(8, 2), loader=samples, length=4))
    only_finding("DD101", Source.RUN, unsharded(change=forwards(8, 4), loader=samples, length=4))


def test_the_same_slices_on_every_rank_are_not():
    only_finding("DD101", Source.RUN, unsharded(change=forwards(2, 2, rank_of=lambda rank: 0)))


def test_whole_common_batches_are_not():
    only_finding("DD101", Source.RUN, unsharded(change=forwards(2, 4)))


def without_loader(input_of, count=4):
    def change(rank, one):
        steps = tuple(
            step(i, forwards=(Forward(i + 0.2, where(48), 0, input=input_of(i, rank), batch=4),))
            for i in range(count)
        )
        return replace(one, loaders=(), passes=(), steps=steps)

    return recorded(change=change)


def test_identical_random_batches_without_a_loader():
    finding = only_finding("DD101", Source.RUN, without_loader(lambda i, rank: f"input {i}"))
    assert finding.headline == ("ranks 0-1 feed identical inputs to the model in each of 4 training steps")
    assert finding.where == where(48)


def seeded(*drawn):
    trace = without_loader(lambda i, rank: f"input {i}")
    record = Record.made(Seeded(-1.0, "numpy", 3, where(9)), *drawn)
    ranks = tuple(replace(one, recording=replace(one.recording, record=record)) for one in trace.ranks)
    return only_finding("DD101", Source.RUN, replace(trace, ranks=ranks))


def test_identical_random_batches_name_the_seed():
    finding = seeded(DrawnBetween(where(48), ("numpy",)))
    assert finding.where == where(9)
    assert finding.evidence[-1].text == "fed at train.py:48"


def test_identical_batches_that_are_not_drawn_name_no_seed():
    for drawn in ((), (DrawnBetween(where(48), ("torch",)),)):
        finding = seeded(*drawn)
        assert finding.where == where(48)
        assert "samples[dist.get_rank()" in finding.fix


def test_random_batches_of_each_ranks_own_are_right():
    passed("DD101", Source.RUN, without_loader(lambda i, rank: f"input {i} of {rank}"))


def test_the_same_batch_again_and_again_is_right():
    passed("DD101", Source.RUN, without_loader(lambda i, rank: "input"))


def test_ranks_of_one_tensor_parallel_group_share_data():
    def change(rank, one):
        own = drawing(one, SHUFFLED[rank // 2], sampler=RANDOM, loader={"samples": 16, "content": "c0ffee"})
        members = (rank % 2, rank % 2 + 2)
        return replace(own, wrappers=(replace(one.wrappers[0], ranks=members),))

    passed("DD101", Source.RUN, recorded(4, change))


def test_a_stream_is_another_checks():
    def change(rank, one):
        return drawing(one, (), loader={"streams": True, "samples": None}, indices=None)

    assert "stream" in skipped("DD101", Source.RUN, recorded(change=change)).reason


def test_one_rank_is_skipped():
    assert skipped("DD101", Source.RUN, recorded(1)).reason == "needs at least two ranks"


@pytest.mark.parametrize("of_rank", [True, False])
def test_a_dataset_that_leaves_out_the_index_is_judged_by_its_batches(of_rank):
    def change(rank, one):
        content = tuple(f"{rank if of_rank else 0}-{batch}" for batch in range(2))
        loader = {**SAME, "ignores_index": True}
        return drawing(one, range(8), sampler=RANDOM, loader=loader, content=content)

    (passed if of_rank else only_finding)("DD101", Source.RUN, recorded(change=change))


def test_ranks_that_all_begin_again_at_the_first_batch():
    trace = without_loader(lambda i, rank: f"input {i}" if i > 3 else f"input {i} of {rank}", count=10)
    finding = only_finding("DD101", Source.RUN, trace)
    assert finding.headline.endswith("in each of 6 training steps, after 4 with different inputs")


def test_a_few_equal_inputs_at_the_end_are_an_accident():
    passed(
        "DD101", Source.RUN, without_loader(lambda i, rank: f"input {i}" if i > 5 else f"{i} of {rank}", 10)
    )
