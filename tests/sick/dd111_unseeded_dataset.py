"""Each rank generates the dataset by itself, and the sampler divides it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class ToyDataset(Dataset):
    def __init__(self, size):
        self.size = size
        self.data = [(torch.rand(4), torch.rand(1)) for _ in range(size)]  # expect: DD111

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return self.data[index]


class Trainer:
    def __init__(self, model, loader, optimizer):
        self.model, self.loader, self.optimizer = DDP(model), loader, optimizer

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()

    def train(self, epochs):
        for epoch in range(epochs):
            self.loader.sampler.set_epoch(epoch)
            for source, targets in self.loader:
                self._run_batch(source, targets)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    dataset = ToyDataset(96)
    loader = DataLoader(dataset, batch_size=8, shuffle=False, sampler=DistributedSampler(dataset))
    model = nn.Linear(4, 1)
    Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=1e-3)).train(2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
