from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor.shards import overlap, shared_by_chance


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


def first_samples(parts, most=64):
    return {rank: part[:most] for rank, part in enumerate(parts)}, {r: len(p) for r, p in enumerate(parts)}


def parts_of_own_orders(ranks, data, random):
    return [random.sample(data, len(data))[rank::ranks] for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("samples", [96, 240, 600])
def test_parts_of_orders_of_their_own_share_by_chance(ranks, samples):
    results = []
    for seed in range(50):
        parts = parts_of_own_orders(ranks, range(samples), Random(seed))
        results.append(shared_by_chance(*first_samples(parts), ranks))
    assert sum(map(bool, results)) >= 45


@given(st.integers(2, 8), st.integers(16, 300), st.randoms(use_true_random=False))
def test_parts_of_one_order_share_nothing(ranks, samples, random):
    order = random.sample(range(samples), samples)
    parts = [order[rank::ranks] for rank in range(ranks)]
    assert not shared_by_chance(*first_samples(parts), ranks)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("distinct", [1, 5, 60])
def test_data_that_repeats_samples_is_no_overlap(ranks, distinct):
    for seed in range(50):
        order = [number % distinct for number in range(240)]
        Random(seed).shuffle(order)
        assert not shared_by_chance(*first_samples([order[rank::ranks] for rank in range(ranks)]), ranks)


def test_what_all_ranks_have_on_purpose_is_no_accident():
    everybody_has_all = [Random(rank).sample(range(40), 40) for rank in range(2)]
    assert not shared_by_chance(*first_samples(everybody_has_all), 2)
    own_and_common = [[*range(100 * rank, 100 * rank + 40), *range(1000, 1006)] for rank in range(2)]
    assert not shared_by_chance(*first_samples(own_and_common), 2)


def test_parts_of_unequal_length_were_not_cut_out_of_one_order():
    parts = [list(range(40)), list(range(20, 44))]
    assert not shared_by_chance(*first_samples(parts), 2)


def test_few_samples_tell_nothing():
    assert not shared_by_chance(*first_samples([[1, 2, 3, 4], [1, 2, 5, 6]]), 2)
