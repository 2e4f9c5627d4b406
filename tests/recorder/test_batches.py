"""Batches that --exact keeps, and puts together."""

from collections import namedtuple

import pytest
import torch

from ddpdoctor.recorder.patches.exact import (
    NotComparable,
    join_batches,
    read_batches,
    tensors_in,
    write_batches,
)

Pair = namedtuple("Pair", "x y")


def test_batches_of_ranks_are_put_together_along_their_first_dimension():
    joined = join_batches(torch, (torch.zeros(2, 3), torch.ones(4, 3)))
    assert joined.shape == (6, 3)
    assert joined[1:3, 0].tolist() == [0.0, 1.0]


def test_containers_keep_their_kind():
    ranks = tuple(Pair(torch.full((1,), rank), {"id": [f"sample {rank}"], "n": 7}) for rank in range(2))
    joined = join_batches(torch, ranks)
    assert isinstance(joined, Pair)
    assert joined.x.tolist() == [0, 1]
    assert joined.y == {"id": ["sample 0", "sample 1"], "n": 7}


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        ((torch.zeros(2, 3), torch.zeros(2, 4)), "different shapes"),
        ((1, 2), "holds int"),
        (({1}, {2}), "holds set"),
    ],
)
def test_what_does_not_fit_together_is_refused(ranks, why):
    with pytest.raises(NotComparable, match=why):
        join_batches(torch, ranks)


def test_what_is_written_is_read_to_the_bit(tmp_path):
    odd = torch.arange(6.0).reshape(2, 3).t().to(torch.bfloat16)
    batch = {"x": odd, "none": torch.empty(0, 3), "y": [torch.tensor(5), "a"]}
    write_batches(str(tmp_path / "kept"), batch)
    back = read_batches(str(tmp_path / "kept"))
    assert torch.equal(back["x"], odd)
    assert back["x"].dtype is torch.bfloat16
    assert back["none"].shape == (0, 3)
    assert (back["y"][0].item(), back["y"][1]) == (5, "a")


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(NotComparable, match="cannot be kept"):
        write_batches(str(tmp_path / "kept"), [lambda: 0])


class Counts(dict):
    asked = 0

    def __eq__(self, other):
        Counts.asked += 1
        return True

    __hash__ = None

    def __reduce__(self):
        Counts.asked += 1
        return Counts, ()


def test_no_code_of_a_class_of_the_script_is_run(tmp_path):
    with pytest.raises(NotComparable, match="holds Counts"):
        write_batches(str(tmp_path / "kept"), [Counts(x=1)])
    with pytest.raises(NotComparable, match="holds Counts"):
        join_batches(torch, (Counts(x=1), Counts(x=1)))
    assert not Counts.asked


def test_tensors_are_found_however_deep():
    assert len(list(tensors_in({"a": [torch.zeros(1), (torch.zeros(2),)], "b": "text"}))) == 2
