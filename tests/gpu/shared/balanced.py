"""Ranks that share one GPU, with gloo: steps of about 20 ms, equal on both."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    data = TensorDataset(torch.randn(4096, 256), torch.randn(4096, 8))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 32, sampler=sampler, pin_memory=True)
    model = DDP(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 8)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    extra = torch.randn(4096, 4096, device="cuda")
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            if os.environ.get("SLOW_RANK") == os.environ["RANK"]:
                for _ in range(20):
                    extra = nn.functional.normalize(extra @ extra)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if "LOSSES" in os.environ and dist.get_rank() == 0:
            with open(os.environ["LOSSES"], "a") as file:
                print(epoch, loss.item(), file=file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
