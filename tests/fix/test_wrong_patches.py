"""Patches that cure their finding and spoil something else are refused: the script is run with each of them."""

from functools import partial

import pytest

from ddpdoctor.fix.edits import moved_lines
from ddpdoctor.fix.verdict import judge
from tests.fix.cases import changed
from tests.fix.forked import ran

pytestmark = pytest.mark.slow

SCRIPT = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
torch.save(state, "last.pt")
dist.destroy_process_group()
"""
SAVE = 'torch.save(state, "last.pt")\n'
ON_RANK_0 = f"if dist.get_rank() == 0:\n    {SAVE}dist.barrier()\n"
STEP = "        optimizer.step()\n"


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    (folder / "project").mkdir()
    (folder / "project" / "train.py").write_text(SCRIPT)
    return ran(folder / "project" / "train.py", folder / "ran", folder / "project", 2), folder


def verdict(before, folder, *changes):
    first, own = before
    text = changed(SCRIPT, (SAVE, ON_RANK_0), *changes)
    copy = folder / "copy"
    copy.mkdir()
    (copy / "train.py").write_text(text)
    after = ran(copy / "train.py", folder / "ran", own / "project", 2)
    findings = [finding for finding in first.findings if finding.code == "DD402"]
    lines = moved_lines(SCRIPT, text)
    return judge(findings, first, after, partial(_moved, lines))


def _moved(lines, _file, line):
    return lines.get(line)


def test_the_right_patch_is_verified(before, tmp_path):
    assert [finding.code for finding in before[0].findings if finding.level.name != "INFO"] == ["DD402"]
    result = verdict(before, tmp_path)
    assert (result.verified, result.text) == (True, "DD402 is gone, nothing new")


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ([("DistributedSampler(data)", "DistributedSampler(data, seed=1)")], "trains on other samples"),
        ([("mse_loss(model(x), y)", "mse_loss(model(x), y).div(2)")], "the first loss of rank 0 is"),
        ([("model(x), y)", "model(x)[:2], y[:2])")], "the first loss of rank 0 is"),
        ([(STEP, f"        if number < 2:\n    {STEP}")], "takes 4 updates in 12 batches, not 12 in 12"),
        ([("SGD(model.parameters()", "SGD(model.module[2].parameters()")], "no longer updates"),
        ([(', "optimizer": optimizer.state_dict()', "")], "last.pt no longer has optimizer"),
        ([("sampler = DistributedSampler(data)", "sampler = torch.utils.data.RandomSampler(data, num_samples=24)"),
          ("    sampler.set_epoch(epoch)\n", "")], "DD"),
    ],
)  # fmt: skip
def test_what_else_it_changes_refuses_it(changes, outcome, before, tmp_path):
    result = verdict(before, tmp_path, *changes)
    assert not result.verified
    assert outcome in result.text
