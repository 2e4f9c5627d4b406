"""Batches are drawn at random without a DataLoader, and every rank has the same seed."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(1337)  # expect: DD101
text = torch.randint(0, 16, (400,))


def get_batch(size=4, length=8):
    starts = torch.randint(len(text) - length, (size,))
    x = torch.stack([text[i : i + length] for i in starts])
    y = torch.stack([text[i + 1 : i + 1 + length] for i in starts])
    return x, y


dist.init_process_group("gloo")
model = DDP(nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(6):
    x, y = get_batch()
    logits = model(x)
    loss = nn.functional.cross_entropy(logits.view(-1, 16), y.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
