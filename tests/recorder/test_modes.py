"""Which modules act by their mode, and are in eval mode."""

import pytest
import torch
from torch import nn

from ddpdoctor.recorder.keys import modules_inside
from ddpdoctor.recorder.patches.forward import in_eval_mode


class Noise(nn.Module):
    """Of the user's own."""

    def forward(self, x):
        return x + torch.randn_like(x) if self.training else x


def model():
    body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.1))
    return nn.ModuleDict({"body": body, "head": nn.Sequential(nn.Linear(2, 2), Noise())})


def evaluating(root, library=False):
    return in_eval_mode(torch, root, modules_inside(root), lambda file: library)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (None, ()),
        ("", ("",)),
        ("body", ("body",)),
        ("body.1", ("body.1",)),
        ("body.0", ()),
        ("head", ("head",)),
        ("head.1", ("head",)),
    ],
)
def test_the_outermost_modules_are_named(path, names):
    root = model()
    if path is not None:
        root.get_submodule(path).eval()
    assert evaluating(root) == names


def test_what_no_mode_changes_is_none():
    assert (
        evaluating(
            nn.Sequential(nn.Linear(2, 2), nn.Dropout(0), nn.BatchNorm1d(2, track_running_stats=False))
        )
        is None
    )


def test_what_a_library_does_by_its_mode_is_not_known():
    assert evaluating(nn.Sequential(Noise()).eval(), library=True) is None
    assert evaluating(nn.Sequential(Noise()).eval()) == ("",)
