from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor.shards import cover, overlap, predict_stall


def test_the_rank_with_fewer_batches_is_waited_for():
    stall = predict_stall({0: 4, 1: 3, 2: 4})
    assert stall is not None
    assert (stall.batch, stall.ended, stall.waiting) == (3, (1,), (0, 2))


def test_equal_counts_do_not_stall():
    assert predict_stall({0: 4, 1: 4}) is None
    assert predict_stall({}) is None


@given(st.integers(1, 9), st.integers(1, 50), st.randoms(use_true_random=False))
def test_a_padded_division_of_any_order_covers_and_does_not_overlap(ranks, samples, random):
    order = random.sample(range(samples), samples)
    padded = [order[i % samples] for i in range(-(-samples // ranks) * ranks)]
    found = cover({rank: padded[rank::ranks] for rank in range(ranks)}, samples)
    assert not found.missing
    assert not found.overlaps


@given(st.integers(2, 40), st.integers(1, 120), st.data())
def test_some_shards_of_a_padded_division_do_not_overlap(ranks, samples, data):
    padded = [number % samples for number in range(-(-samples // ranks) * ranks)]
    known = data.draw(st.sets(st.integers(0, ranks - 1), min_size=2))
    assert overlap({rank: padded[rank::ranks] for rank in known}, samples, ranks) is None


def test_shards_of_another_order_overlap_among_those_that_are_known():
    shards = {0: range(100), 1: range(50, 150)}
    shared = overlap(shards, 800, 8)
    assert shared is not None
    assert (len(shared.shared), shared.never) == (50, None)
