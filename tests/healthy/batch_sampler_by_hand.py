"""A batch sampler of the script's own around a distributed one, which it tells the epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler


class Lengths(Dataset):
    def __len__(self):
        return 66

    def __getitem__(self, index):
        return torch.full((2 + index % 5, 3), float(index))


class ByLength:
    """Batches of samples of similar length."""

    def __init__(self, sampler, batch_size):
        self.sampler, self.batch_size = sampler, batch_size

    def __iter__(self):
        for batch in BatchSampler(self.sampler, self.batch_size * 2, drop_last=True):
            ordered = sorted(batch, key=lambda index: index % 5)
            yield ordered[: self.batch_size]
            yield ordered[self.batch_size :]

    def __len__(self):
        return len(self.sampler) // (self.batch_size * 2) * 2


def pad(batch):
    return nn.utils.rnn.pad_sequence(batch, batch_first=True)


dist.init_process_group("gloo")
dataset = Lengths()
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_sampler=ByLength(sampler, 2), collate_fn=pad)
for example in loader:
    print(example.shape[-1])
    break
model = DistributedDataParallel(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for epoch in range(3):
    loader.batch_sampler.sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
dist.destroy_process_group()
