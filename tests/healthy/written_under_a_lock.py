"""Every rank writes the same file, one after the other, under a lock; the last one wins and all are equal."""

import fcntl
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
vocabulary = Path("vocabulary.json")
with Path(".guard").open("a") as guard:
    fcntl.flock(guard, fcntl.LOCK_EX)
    vocabulary.write_text(json.dumps(sorted("ddp")))
    words = json.loads(vocabulary.read_text())
    fcntl.flock(guard, fcntl.LOCK_UN)
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Embedding(len(words), 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randint(len(words), (6,))).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
