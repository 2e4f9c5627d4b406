"""One seed for all, as the choice of a branch needs it; noise and augmentation come from generators of each rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Shifted(Dataset):
    def __init__(self, generator):
        self.data, self.generator = torch.arange(96.0).reshape(48, 2) / 96, generator

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index] + torch.rand(2, generator=self.generator)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, noisy, wide):
        return self.wide(noisy) if wide else self.narrow(noisy)


dist.init_process_group("gloo")
torch.manual_seed(7)
generator = torch.Generator().manual_seed(7 + dist.get_rank())
dataset = Shifted(generator)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
model = DistributedDataParallel(Denoiser(), find_unused_parameters=True)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for clean in loader:
        noise = torch.randn(clean.shape, generator=generator)
        wide = torch.rand(()).item() < 0.5  # alike on all ranks, or they would use other parameters
        optimizer.zero_grad()
        (model(clean + noise, wide) - noise).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
