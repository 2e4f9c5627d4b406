"""Two runs that change while they train, watched to their end."""

import sys
from pathlib import Path

import pytest

from tests.support.command import ddpdoctor

pytestmark = pytest.mark.slow

SCRIPT = """
import sys, time
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SECONDS, what, began, kept = 100, sys.argv[1], time.monotonic(), []
torch.set_num_threads(1)
dist.init_process_group("gloo")
late = lambda share: time.monotonic() - began > SECONDS * share
on_rank_1 = dist.get_rank() == 1


class Samples(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        time.sleep(0.025 if what == "loader" and late(0.3) else 0.002)  # a wait that no busy machine hides
        return torch.ones(8)


model = DDP(nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
samples = Samples()
loader = DataLoader(samples, batch_size=2, sampler=DistributedSampler(samples))
over, epoch = torch.zeros(1), 0
while not over:
    loader.sampler.set_epoch(epoch)
    epoch += 1
    for batch in loader:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if what == "memory" and on_rank_1 and late(0.5):
            kept.append(torch.ones(40_000))
    over.fill_(time.monotonic() - began > SECONDS)
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("what", "words", "ranks"),
    [
        ("loader", "ranks 0-1 wait longer for data since step", [0, 1]),
        ("memory", "memory of rank 1 grew from", [1]),
    ],
)
def test_a_run_that_changes(what: str, words: str, ranks: list[int], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "train.py",
        what,
    ]
    done = ddpdoctor("watch", "--format", "json", "--select", "DD609", "--", *launch, cwd=tmp_path)
    (finding,) = done.report["findings"]
    assert (finding["code"], finding["ranks"]) == ("DD609", ranks)
    assert words in finding["headline"]
