"""FSDP on GPUs, whose shards are put together for the checkpoint by functional collectives."""
# needs torch 2.6: FSDP2 has another name before

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).cuda()
for layer in (model[0], model[2], model):
    fully_shard(layer)
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(320, 16), torch.randint(0, 8, (320,)))
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, 8, sampler=sampler):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
whole = {name: shard.full_tensor().cpu() for name, shard in model.state_dict().items()}
if dist.get_rank() == 0:
    torch.save(whole, "model.pt")
dist.destroy_process_group()
