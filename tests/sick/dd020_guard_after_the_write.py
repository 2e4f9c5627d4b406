"""The barrier stands before the write and not after it: ranks write the vocabulary at one time."""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Vocabulary:
    def __init__(self, folder):
        self.path = Path(folder, "vocabulary.json")
        self.words = list("abcdefgh")
        if not self.path.exists():
            self.path.parent.mkdir(exist_ok=True)
            dist.barrier()
            self.path.write_text(json.dumps(self.words))  # expect: DD020


dist.init_process_group("gloo")
vocabulary = Vocabulary("cache")
torch.manual_seed(dist.get_rank())
model = DDP(nn.Embedding(len(vocabulary.words), 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randint(8, (5,))).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
