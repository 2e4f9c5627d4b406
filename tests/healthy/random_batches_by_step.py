"""Random batches from one array, as nanoGPT draws them: each rank from a seed of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
tokens = torch.arange(600) % 17
torch.manual_seed(1337 + rank)
accumulation, block, batch_size = 2, 8, 3


def get_batch(split):
    data = tokens[:500] if split == "train" else tokens[500:]
    starts = torch.randint(len(data) - block, (batch_size,))
    return tuple(torch.stack([data[i + shift : i + shift + block] for i in starts]) for shift in (0, 1))


model = DDP(nn.Sequential(nn.Embedding(17, 8), nn.Linear(8, 17)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss_of(network, x, y):
    return nn.functional.cross_entropy(network(x).view(-1, 17), y.view(-1))


@torch.no_grad()
def estimate():
    return {
        split: sum(loss_of(model.module, *get_batch(split)).item() for _ in range(3)) / 3
        for split in ("train", "val")
    }


for step in range(8):
    if step % 4 == 0 and rank == 0:
        losses = estimate()
        print(f"step {step}: train {losses['train']:.4f}, val {losses['val']:.4f}")
        torch.save({"model": model.module.state_dict(), "step": step}, "ckpt.pt")
    for micro in range(accumulation):
        model.require_backward_grad_sync = micro == accumulation - 1
        (loss_of(model, *get_batch("train")) / accumulation).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
dist.barrier()
dist.destroy_process_group()
