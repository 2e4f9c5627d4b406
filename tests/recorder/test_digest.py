"""Digests of tensors, on the CPU and by the arithmetic that other devices use."""

import random
import warnings

import pytest
import torch

from ddpdoctor.recorder import digest


def of(tensor):
    return digest.digests(torch, [tensor])[0]


def folded(tensor):
    with digest.unseen(torch):
        return digest._read(torch, [digest._fold(torch, tensor)])[0]


@pytest.mark.parametrize("take", [of, folded])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8])
def test_equal_bits_have_equal_digests_and_order_counts(take, dtype):
    values = torch.arange(1000).to(dtype)
    swapped = values.clone()
    swapped[[3, 900]] = swapped[[900, 3]]
    assert take(values) == take(values.clone())
    assert take(values) != take(swapped)


@pytest.mark.parametrize("take", [of, folded])
def test_the_sign_of_zero_and_nan_are_bits_as_any_others(take):
    zero, nan = torch.zeros(4), torch.full((4,), float("nan"))
    assert take(zero) != take(-zero)
    assert take(nan) == take(nan.clone())


def test_the_way_values_lie_in_memory_does_not_count():
    image = torch.randn(2, 3, 4, 5)
    assert of(image) == of(image.to(memory_format=torch.channels_last))
    assert of(image.transpose(0, 1)) == of(image.transpose(0, 1).contiguous())
    assert of(torch.tensor([1 + 2j]).conj()) == of(torch.tensor([1 - 2j]))


def test_what_holds_no_values_here_is_left_out():
    assert of(None) is None
    assert of(torch.empty(3, device="meta")) is False
    assert of(torch.zeros(0)) == 0


def test_a_sparse_gradient_has_a_digest():
    table = torch.nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1, 1, 2])).sum().backward()
    same = table.weight.grad.clone()
    assert isinstance(of(table.weight.grad), int)
    assert of(same) == of(table.weight.grad)
    assert not same.is_coalesced()


def test_many_tensors_of_a_device_are_read_at_once():
    tensors = [torch.arange(n) for n in (1, 5, digest._CHUNK + 3)]
    with digest.unseen(torch):
        together = digest._read(torch, [digest._fold(torch, tensor) for tensor in tensors])
    assert together == [folded(tensor) for tensor in tensors]


def test_a_sample_of_a_long_tensor_sees_its_ends():
    long = torch.zeros(1 << 20)
    first, last = long.clone(), long.clone()
    first[0] = last[-1] = 1
    assert len({digest.sample(torch, one) for one in (long, first, last)}) == 3


def test_nothing_else_changes():
    weight = torch.nn.Parameter(torch.randn(10))
    version, state, python = weight._version, torch.get_rng_state(), random.getstate()
    with warnings.catch_warnings(record=True) as warned:
        of(weight)
        folded(weight)
    assert (weight._version, weight.grad_fn, weight.requires_grad) == (version, None, True)
    assert torch.equal(state, torch.get_rng_state())
    assert random.getstate() == python
    assert torch.is_grad_enabled()
    assert not warned


def test_a_view_has_the_digest_of_its_own_values():
    whole = torch.arange(40)
    for start in (0, 8, 24):
        view = whole[start : start + 8].view(2, 4)
        assert digest.sample(torch, view) == digest.sample(torch, view.clone())
        assert digest.sample(torch, view, most=32) == digest.sample(torch, view.clone(), most=32)
