# ruff: noqa - written as users write
"""mp.spawn with an explicit rank and a fixed port, one process for each visible GPU."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = sys.argv[1]
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.relu, self.net2 = nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_checkpoint(rank, world_size, path):
    setup(rank, world_size)
    ddp_model = DDP(ToyModel().to(rank), device_ids=[rank])
    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier()
    map_location = {"cuda:0": f"cuda:{rank}"}
    loaded = torch.load(path, map_location=map_location, weights_only=True)
    assert {value.device for value in loaded.values()} == {torch.device("cuda", rank)}
    ddp_model.load_state_dict(loaded)
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    outputs = ddp_model(torch.randn(20, 10))
    labels = torch.randn(20, 5).to(rank)
    nn.MSELoss()(outputs, labels).backward()
    assert outputs.get_device() == rank
    optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    n_gpus = torch.cuda.device_count()
    assert n_gpus >= 2, f"Requires at least 2 GPUs to run, but got {n_gpus}"
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(
            demo_checkpoint, args=(n_gpus, os.path.join(folder, "model.checkpoint")), nprocs=n_gpus, join=True
        )
    print("spawned", n_gpus)
