"""The wrap depends on a GPU being there; group and sampler do not."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(96, 4), torch.randn(96, 1))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = nn.Linear(4, 1)
    if torch.cuda.is_available():  # expect: DD227
        device = torch.device("cuda", torch.cuda.current_device())
        model = DistributedDataParallel(model.to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    dist.barrier()  # rank 0 has the store, which the others may still need
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
