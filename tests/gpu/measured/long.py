"""Three epochs of a thousand steps; each gives the GPU work for some 30 ms and does not wait for it."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    data = TensorDataset(torch.randn(4000, 4096))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 4, sampler=sampler, pin_memory=True)
    model = DDP(nn.Linear(4096, 4096).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    work = torch.randn(8192, 8192, device="cuda")
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            loss = model(x.cuda(non_blocking=True)).square().mean()
            for _ in range(2):
                torch.mm(work, work)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", round(loss.item(), 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
