"""Samples are computed from their number, so the dataset itself shows nothing; every rank draws all of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Parabola(Dataset):
    def __init__(self, points):
        self.points = points

    def __len__(self):
        return self.points

    def __getitem__(self, index):
        x = torch.tensor([index / self.points])
        return {"x": x, "y": x * x}


dist.init_process_group("gloo")
torch.manual_seed(42 + dist.get_rank())
loader = DataLoader(Parabola(48), batch_size=4, shuffle=True)  # expect: DD101
model = DDP(nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(batch["x"]), batch["y"]).backward()
        optimizer.step()
dist.destroy_process_group()
