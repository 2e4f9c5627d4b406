"""Each rank leaves the score of its part in a file of its own, and rank 0 reads them all before it saves the best."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
rank, world_size = dist.get_rank(), dist.get_world_size()
train_set = TensorDataset(torch.randn(48, 4), torch.randint(0, 2, (48,)))
test_set = TensorDataset(torch.randn(24, 4), torch.randint(0, 2, (24,)))
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=4, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=4, sampler=DistributedSampler(test_set, shuffle=False))
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = -1
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in train_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum().item()
    torch.save({"correct": correct}, f"score_{epoch}_{rank}.pt")
    dist.barrier()
    if rank == 0:
        total = sum(torch.load(f"score_{epoch}_{other}.pt")["correct"] for other in range(world_size))
        print(f"epoch {epoch}: {total / len(test_set):.3f}")
        if total > best:
            best = total
            torch.save(model.module.state_dict(), "best.pt")
dist.destroy_process_group()
