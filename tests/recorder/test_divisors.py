"""Means taken by hand, as the graph of a loss shows them."""

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

from ddpdoctor.recorder.events.training import MeanLoss
from ddpdoctor.recorder.patches.losses import divisors, factors_of_means, scale_means

losses = torch.randn(5, requires_grad=True) * 2
mask = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0])


def found(loss):
    return [(one.count, round(one.factor, 4)) for one in divisors(torch, loss.grad_fn, wait=False)]


reads_numbers = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"),
    reason="this torch does not say whether a saved tensor has hooks, so none is read",
)


@reads_numbers
@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ((losses * mask).sum() / mask.sum(), (3, 1.0)),
        ((losses * mask).sum() / int(mask.sum()), (3, 1.0)),
        ((losses * mask).sum() / (mask.sum() + 1e-6), (3, 1.0)),
        (torch.dot(losses, mask) / mask.sum().clamp(min=1) * 65536.0, (3, 65536.0)),
        (losses[mask.bool()].mean() * 0.5, (3, 0.5)),
        (torch.masked_select(losses, mask.bool()).mean(), (3, 1.0)),
        ((2 - losses)[mask.bool()].abs().square().mean() * 10, (3, 10.0)),
        ((losses / mask.sum()).sum(), (3, 1.0)),
        (mask.sum() * (losses * mask).sum() / mask.sum() / 7, (7, 1.0)),
        (-(losses * mask).sum().div(5) / 2, (5, 0.5)),
    ],
)
def test_a_sum_that_is_divided(loss, expected):
    assert found(loss) == [expected]


@reads_numbers
def test_every_term_of_a_loss():
    assert found((losses * mask).sum() / 3 + 0.1 * (losses.sum() / 5)) == [(3, 1.0), (5, 0.1)]


@pytest.mark.parametrize(
    "loss",
    [
        losses.sum(),
        losses.mean(),
        losses[mask.bool()].sum().square().mean(),
        losses.sum() / 2.5,
        3 / losses.sum(),
        losses[0],
    ],
)
def test_what_is_no_mean_by_hand(loss):
    assert found(loss) == []


def test_what_was_saved_under_hooks_is_not_read():
    calls = []

    def term(values):
        calls.append(1)
        return (values * mask).sum() / mask.sum()

    assert found(checkpoint(term, losses, use_reentrant=False)) == []
    assert calls == [1]


@reads_numbers
@pytest.mark.parametrize(
    ("loss", "factor"),
    [
        (losses.mean() / 4, 0.25),
        (torch.nn.functional.mse_loss(losses, mask) * 65536.0 / 2, 0.5),
        (0.1 * losses.sum() + losses.square().mean() * 3, 3.0),
        (losses.sum() / 5, None),
        (torch.nn.functional.mse_loss(losses, mask, reduction="sum"), None),
    ],
)
def test_what_a_mean_is_scaled_by(loss, factor):
    means = factors_of_means(torch, loss.grad_fn, [65536.0], wait=False)
    assert next((known for _, known in means), None) == factor


logits = torch.randn(6, 3, requires_grad=True) * 2
targets = torch.tensor([0, 1, 2, -100, -100, 1])


def mean_of(function="cross_entropy", count=4):
    return MeanLoss(None, function, count)


def scaled(loss, *means, sums=False):
    factors = list(factors_of_means(torch, loss.grad_fn, [], wait=False, sums=sums))
    return [round(mean.factor, 4) for mean in scale_means(list(means), factors)]


@reads_numbers
def test_a_mean_that_is_scaled_by_its_own_count():
    count = (targets != -100).sum()
    loss = cross_entropy(logits, targets) * count / 16 + 0.1 * mse_loss(losses, mask)
    assert scaled(loss, mean_of(), mean_of("mse_loss", 5)) == [0.25, 0.1]
    assert scaled(cross_entropy(logits, targets) * 0.5, mean_of()) == [0.5]


@reads_numbers
def test_what_a_sum_is_scaled_by():
    loss = 3 * cross_entropy(logits, targets, reduction="sum") / torch.tensor(12) + cross_entropy(
        logits, targets
    )
    assert scaled(loss, mean_of(), sums=True) == [0.25]
    assert scaled(loss, mean_of()) == [1.0]


@reads_numbers
def test_means_that_cannot_be_told_apart_are_left_as_they_are():
    twice = torch.stack([cross_entropy(logits, targets), cross_entropy(logits, targets)]).sum()
    assert scaled(twice, mean_of(), mean_of()) == [1.0, 1.0]


@reads_numbers
def test_a_loss_that_sums_by_its_own_argument_is_a_sum():
    outputs, targets = torch.randn(6, 4, requires_grad=True), torch.tensor([0, 1, -100, 2, 3, -100])
    loss = cross_entropy(outputs, targets, reduction="sum")
    assert found(loss / (targets != -100).sum()) == [(4, 1.0)]
    assert found(cross_entropy(outputs, targets) / 4) == []
