"""Two forwards, and then two losses taken backward one by one."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(8, 8)
        labels = torch.randint(0, 3, (8,))
        clean = model(x)
        noisy = model(x + 0.1 * torch.randn_like(x))
        optimizer.zero_grad()
        nn.functional.cross_entropy(clean, labels).backward()
        nn.functional.cross_entropy(noisy, labels).backward()  # expect: DD207
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
