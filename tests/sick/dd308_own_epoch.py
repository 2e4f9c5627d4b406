"""Each rank ends its training after an epoch whose mean loss of its own is low enough; rank 1's is first.

The others have begun the next pass when they learn of it.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    world_size = dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(24 * world_size, 3)
    x[1::world_size] = 0  # of rank 1's shard nothing is left to learn
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
    model = DistributedDataParallel(nn.Linear(3, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(10):
        total = 0.0
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if total / len(loader) < 0.01:  # expect: DD308 ranks 1
            break
    dist.destroy_process_group()


main()
