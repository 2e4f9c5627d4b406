"""Each rank plays against earlier weights, kept at times and chosen at random of its own, beside one that it loads."""

import copy
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
chance = random.Random(rank)
torch.manual_seed(rank)
policy = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
learner = DistributedDataParallel(policy)
optimizer = torch.optim.Adam(learner.parameters(), lr=0.01)
pool = [copy.deepcopy(policy)]
rival = copy.deepcopy(policy)
for number in range(40):
    x = torch.randn(8, 4)
    with torch.no_grad():
        moves = chance.choice(pool)(x).argmax(1)
        margin = rival(x).softmax(1)
    logits = learner(x)
    loss = nn.functional.cross_entropy(logits, 1 - moves) + (logits.softmax(1) - margin).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if chance.random() < 0.3:
        pool = [*pool[-2:], copy.deepcopy(policy)]
    if number % (5 + rank) == 4:
        rival.load_state_dict(policy.state_dict())
dist.destroy_process_group()
