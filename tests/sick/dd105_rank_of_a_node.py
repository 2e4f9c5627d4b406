"""Every rank divides as rank 0: the variable that is read for the rank is another scheduler's."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
    world_size = int(os.environ["WORLD_SIZE"])
    dataset = TensorDataset(torch.arange(60.0).reshape(60, 1))
    sampler = DistributedSampler(  # expect: DD105 ranks 1-
        dataset, num_replicas=world_size, rank=rank, drop_last=True
    )
    loader = DataLoader(dataset, batch_size=4, sampler=sampler)
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
