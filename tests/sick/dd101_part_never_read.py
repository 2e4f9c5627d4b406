"""The dataset notes which samples are the rank's, and takes all of them: ranks train on the same batches."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __init__(self, count):
        self.x = torch.randn(count, 4, generator=torch.Generator().manual_seed(0))
        self.mine = list(range(dist.get_rank(), count * dist.get_world_size(), dist.get_world_size()))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index]


dist.init_process_group("gloo")
torch.manual_seed(0)
loader = DataLoader(Samples(48), batch_size=4, shuffle=True)  # expect: DD101
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
