"""One sample of rank 1's shard is a named pipe that nobody writes into; the dataset opens it in the rank itself."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Files(Dataset):
    def __init__(self, folder):
        self.files = [os.path.join(folder, f"{number}.txt") for number in range(12 * dist.get_world_size())]
        for number, file in enumerate(self.files):
            if dist.get_rank() == 1 and number == len(self.files) - dist.get_world_size() + 1:
                os.mkfifo(file)
            else:
                with open(file, "w") as opened:
                    opened.write(f"{number} {number + 1}")

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with open(self.files[index]) as opened:  # expect: DD307 ranks 1
            return torch.tensor([float(word) for word in opened.read().split()])


class Trainer:
    def __init__(self, folder):
        self.model = DDP(nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        files = Files(folder)
        self.loader = DataLoader(files, batch_size=3, sampler=DistributedSampler(files, shuffle=False))

    def fit(self):
        for batch in self.loader:
            self.optimizer.zero_grad()
            self.model(batch).mean().backward()
            self.optimizer.step()


dist.init_process_group("gloo")
with tempfile.TemporaryDirectory() as place:
    Trainer(place).fit()
dist.destroy_process_group()
