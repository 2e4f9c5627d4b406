"""Two runs that change while they train, watched to their end."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.command import Done, ddpdoctor

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
        time.sleep(0.05 if what == "loader" and late(0.3) else 0.01)  # a wait that no busy machine hides
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


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """Each run, watched; at the same time, since both mostly wait."""
    folders = {what: tmp_path_factory.mktemp(what) for what in ("loader", "memory")}
    with ThreadPoolExecutor() as pool:
        return dict(zip(folders, pool.map(watched, folders, folders.values()), strict=True))


def watched(what: str, folder: Path) -> Done:
    (folder / "train.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    return ddpdoctor("watch", "--format", "json", "--select", "DD609", "--", *launch, what, cwd=folder)


@pytest.mark.parametrize(
    ("what", "words", "ranks"),
    [
        ("loader", "ranks 0-1 wait longer for data since step", [0, 1]),
        ("memory", "memory of rank 1 grew from", [1]),
    ],
)
def test_a_run_that_changes(what: str, words: str, ranks: list[int], both: dict[str, Done]) -> None:
    (finding,) = both[what].report["findings"]
    assert (finding["code"], finding["ranks"]) == ("DD609", ranks)
    assert words in finding["headline"]
