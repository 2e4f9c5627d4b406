"""Every rank reads the same tokens from the beginning on; the seed that all ranks share is not why."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.manual_seed(1337)


class Reader:
    def __init__(self, size=4, length=8):
        self.tokens = torch.randint(0, 13, (400,), generator=torch.Generator().manual_seed(5))
        self.size, self.length, self.place = size, length, 0

    def next_batch(self):
        piece = self.tokens[self.place : self.place + self.size * self.length + 1]
        self.place += self.size * self.length
        return piece[:-1].view(self.size, -1), piece[1:].view(self.size, -1)


dist.init_process_group("gloo")
model = DDP(nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
reader = Reader()
for step in range(6):
    x, y = reader.next_batch()
    logits = model(x)  # expect: DD101
    optimizer.zero_grad()
    nn.functional.cross_entropy(logits.view(-1, 16), y.view(-1)).backward()
    optimizer.step()
dist.destroy_process_group()
