"""Fine-tuning takes the weights alone from a checkpoint that holds more, with a new head and strict=False."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self, classes, head):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.add_module(head, nn.Linear(8, classes))
        self.head_name = head

    def forward(self, x):
        return getattr(self, self.head_name)(self.body(x).relu())


dist.init_process_group("gloo")
if dist.get_rank() == 0:
    os.makedirs("pretrained", exist_ok=True)
    source = Net(10, "classifier")
    state = torch.optim.Adam(source.parameters()).state_dict()
    torch.save({"model": source.state_dict(), "optimizer": state, "epoch": 90}, "pretrained/net.pt")
dist.barrier()
model = Net(3, "head")
checkpoint = torch.load("pretrained/net.pt", map_location="cpu")
missing, unexpected = model.load_state_dict(checkpoint["model"], strict=False)
print(sorted(missing), sorted(unexpected))
model = DDP(model)
data = TensorDataset(torch.randn(48, 4, generator=torch.Generator().manual_seed(0)), torch.arange(48) % 3)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "epoch": epoch}, "tuned.pt")
dist.barrier()
dist.destroy_process_group()
