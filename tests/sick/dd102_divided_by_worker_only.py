"""The stream is divided among the workers, on every rank alike."""

from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        samples = (torch.full((3,), float(i)) for i in range(48))
        return islice(samples, info.id, None, info.num_workers)


def main():
    dist.init_process_group("gloo")
    loader = DataLoader(Shards(), batch_size=4, num_workers=2)  # expect: DD102
    model = DistributedDataParallel(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
