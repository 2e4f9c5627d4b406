"""Each rank shuffles the whole dataset by a seed of its own."""

import argparse

import torch
import torch.distributed as dist
import torch.utils.data as data
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Numbers(data.Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(count, 6, generator=generator)
        self.labels = torch.randint(0, 3, (count,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.inputs[index], self.labels[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=5)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1234 + dist.get_rank())
    loader = data.DataLoader(Numbers(30), args.batch_size, shuffle=True, drop_last=True)  # expect: DD101
    model = DDP(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = torch.optim.Adam(model.parameters())
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        model.train()
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            criterion(model(x), y).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
