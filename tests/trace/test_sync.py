"""Whether replicas stayed together."""

from pathlib import Path

import pytest

from ddpdoctor.program import Program
from ddpdoctor.trace.sync import Group, weights_are_made_equal
from tests.support.recordings import recording, replace

HEAD = """\
import torch, torch.distributed as dist
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import PostLocalSGDOptimizer
model = torch.nn.Linear(3, 3)
model.register_comm_hook(state, post_localSGD_hook)
loss = model(torch.ones(3)).sum()
"""


def local_sgd(folder: Path, code: str) -> Group:
    """Ranks whose wrapper has torch's hook, and whose script has these lines."""
    script = folder / "train.py"
    script.write_text(HEAD + code)
    right = {rank: recording(rank, 4) for rank in range(4)}
    return {
        rank: replace(it, script=str(script), wrappers=(replace(it.wrappers[0], hook="post_localSGD_hook"),))
        for rank, it in right.items()
    }


@pytest.mark.parametrize(
    "code",
    [
        "class AverageMeter:\n    pass\nlosses_averager = AverageMeter()\n",
        "weight_loss = loss\ndist.all_reduce(weight_loss)\n",
        "def average_parameters(model):\n    pass\naverage_parameters(model)\n",
    ],
    ids=["a meter", "a loss called weight", "a function of that name"],
)
def test_a_name_averages_no_weights(tmp_path, code):
    assert not weights_are_made_equal(local_sgd(tmp_path, code))


@pytest.mark.parametrize(
    "code",
    [
        "a = averagers.PeriodicModelAverager(4)\n",
        "o = PostLocalSGDOptimizer(optimizer, a)\n",
        "for a in model.parameters():\n    dist.all_reduce(a.data)\n",
        "def f(a):\n    for b in a:\n        dist.broadcast(b, 0)\nf(list(model.state_dict().values()))\n",
    ],
    ids=["an averager", "an optimizer that averages", "each parameter", "in a function"],
)
def test_what_averages_weights_at_long_intervals(tmp_path, code):
    assert weights_are_made_equal(local_sgd(tmp_path, code))


def test_the_files_of_a_script_are_searched_for_an_average_once_for_all_ranks(tmp_path, monkeypatch):
    searched = []
    every_call = Program.every_call
    monkeypatch.setattr(Program, "every_call", lambda self: searched.append(self) or every_call(self))
    assert not weights_are_made_equal(local_sgd(tmp_path, ""))
    assert len(searched) == 1
