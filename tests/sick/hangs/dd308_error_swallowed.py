"""A batch fails in the augmentation of one rank, which goes on to the next and has averaged once less in the end."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Crop:
    def __init__(self, rank):
        self.broken_at = 4 if rank == 1 else None
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        if self.calls == self.broken_at:
            raise ValueError("an empty crop")
        return x[:, :4]


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    crop = Crop(rank)
    x = torch.randn(32 * world_size, 6)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        try:
            loss = nn.functional.mse_loss(model(crop(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        except ValueError as error:  # expect: DD308 ranks 1
            print("left out:", error)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
