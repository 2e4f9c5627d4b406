"""The shape of frameworks' engines: a sanity check of the evaluation that stays open, and epochs counted in batches.

Evaluation goes over everything on each rank on purpose. The engine draws by next, and begins the loader anew where it
ends before the epoch does.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Engine:
    def __init__(self, model, optimizer, training, held_out):
        self.model, self.optimizer = model, optimizer
        self.training, self.held_out = training, held_out
        self.checking = iter(held_out)

    def evaluate(self, batches):
        self.model.eval()
        with torch.no_grad():
            losses = [nn.functional.mse_loss(self.model.module(x), y) for x, y in batches]
        self.model.train()
        return torch.stack(losses).mean()

    def run(self, epochs):
        self.evaluate([next(self.checking) for _ in range(2)])
        for epoch in range(epochs):
            self.training.sampler.set_epoch(epoch)
            self.run_epoch()
        return self.evaluate(self.held_out)

    def run_epoch(self):
        drawing = iter(self.training)
        done = 0
        while done < len(self.training):
            try:
                x, y = next(drawing)
            except StopIteration:
                drawing = iter(self.training)
                continue
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()
            done += 1


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(72 * dist.get_world_size(), 3), torch.randn(72 * dist.get_world_size(), 1))
held_out = DataLoader(TensorDataset(torch.randn(40, 3), torch.randn(40, 1)), batch_size=4)
training = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DistributedDataParallel(nn.Linear(3, 1))
Engine(model, torch.optim.SGD(model.parameters(), lr=0.01), training, held_out).run(3)
dist.destroy_process_group()
