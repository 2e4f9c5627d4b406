"""Where the data goes on when a training is resumed by another number of ranks."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.sample_trainer.bundled import module

loading = module("loading")


def shares(total: int, ranks: int, begin: int) -> list[list[int]]:
    """What each rank reads of an epoch from a sample on."""
    found = []
    for rank in range(ranks):
        share: Any = loading.Share(
            range(total), shuffle=True, seed=1, cut=True, num_replicas=ranks, rank=rank
        )
        share.set_epoch(3)
        share.begin = begin
        found.append(list(share))
        assert len(share) == len(found[-1])
    return found


@given(st.integers(1, 90), st.integers(1, 5), st.integers(1, 5), st.integers(0, 30))
def test_no_sample_is_read_twice_and_all_ranks_read_equally_many(total, ranks, others, steps):
    before = [own[:steps] for own in shares(total, ranks, 0)]
    begin = sum(map(len, before))
    after = shares(total, others, begin)
    read = [sample for own in before + after for sample in own]
    assert len(set(read)) == len(read)
    assert len({len(own) for own in after}) == 1  # or a rank would wait in a step that the others do not take
    assert len(read) > total - others  # nothing is left that would have made one more for each
