"""``check --exact``: the first update of all ranks, computed again by one process."""

from pathlib import Path

import pytest

from tests.support.command import Done, ddpdoctor

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(3)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
sampler = DistributedSampler(data)
layers = [torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)] if "norm" in sys.argv else [torch.nn.Linear(4, 4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, 4, sampler=sampler):
        optimizer.zero_grad()
        noise = torch.randn_like(x) if "noise" in sys.argv else 0.0
        torch.nn.functional.mse_loss(model(x + noise), y).backward()
        if "twice" in sys.argv:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        optimizer.step()
dist.destroy_process_group()
"""


def check(folder: Path, *arguments: str) -> Done:
    (folder / "train.py").write_text(SCRIPT)
    options = (
        "--nproc",
        "2",
        "--select",
        "DD211,DD228",
        "--exact",
        "--ignore",
        "group",
        "--format",
        "json",
        "-q",
    )
    return ddpdoctor("check", *options, "train.py", *arguments, cwd=folder, env={"TMPDIR": str(folder)})


def test_a_right_script_has_the_gradient_of_one_process(tmp_path):
    done = check(tmp_path)
    assert done.status == 0, done.err
    assert done.outcome("DD228")["outcome"] == "pass"
    assert "is 1 times that of one process on the same samples" in done.outcome("DD228")["text"]


def test_a_factor_is_proven(tmp_path):
    done = check(tmp_path, "twice")
    (finding,) = done.report["findings"]
    assert finding["code"] == "DD211"
    proof = [one["text"] for one in finding["evidence"] if one["text"].startswith("proven: ")]
    assert proof[0].startswith("proven: the gradient of the first update is 2 times that of one process")


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("norm", "BatchNorm1d takes its statistics from the batch of each rank"),
        ("noise", "its first update draws random numbers, on each rank its own"),
    ],
)
def test_what_rightly_differs_is_not_compared(tmp_path, argument, reason):
    done = check(tmp_path, argument)
    assert done.status == 0, done.err
    assert done.outcome("DD228")["outcome"] == "skip"
    assert done.outcome("DD228")["reason"] == reason


def test_a_launch_line_cannot_be_run_in_one_process(tmp_path):
    done = ddpdoctor("check", "--exact", "--", "torchrun", "train.py", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "--exact runs the script in a single process" in done.err
