"""A thread of rank 0 holds the cache's lock when the workers are forked, so their copies are never released."""

import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Cached(Dataset):
    def __init__(self):
        self.lock = threading.Lock()
        self.begun = threading.Event()
        self.cache = {}

    def __len__(self):
        return 48

    def __getitem__(self, index):
        with self.lock:  # expect: DD307 ranks 0
            if index not in self.cache:
                self.cache[index] = torch.randn(4)
            return self.cache[index]

    def warm_up(self):
        with self.lock:
            self.begun.set()
            time.sleep(2)
            self.cache[0] = torch.zeros(4)


def main():
    dist.init_process_group("gloo")
    dataset = Cached()
    if dist.get_rank() == 0:
        threading.Thread(target=dataset.warm_up, daemon=True).start()
        dataset.begun.wait()
    loader = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset), num_workers=1)
    batches = iter(loader)  # the workers begin while the model is still made
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
