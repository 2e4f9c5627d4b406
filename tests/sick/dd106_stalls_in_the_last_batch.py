"""A short list divided unevenly: the run comes to the batch in which one rank waits for the others."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
    samples = [torch.tensor([float(i), 1.0]) for i in range(4 * dist.get_world_size() + 1)]
    mine = samples[dist.get_rank() :: dist.get_world_size()]
    loader = DataLoader(mine, batch_size=2)  # expect: DD106 ranks 1-
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
