"""A runner that goes on from its own snapshot: weights and epoch are restored, what is in "opt" is not."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SNAPSHOT = "snapshot.pt"


class Runner:
    def __init__(self, resume=False):
        torch.manual_seed(0)
        dataset = TensorDataset(torch.randn(48, 4))
        self.sampler = DistributedSampler(dataset)
        self.loader = DataLoader(dataset, batch_size=4, sampler=self.sampler)
        net, self.start = nn.Linear(4, 1), 0
        if resume:
            snapshot = torch.load(SNAPSHOT, map_location="cpu")
            net.load_state_dict(snapshot["net"])  # expect: DD405
            self.start = snapshot["epoch"] + 1
        self.net = nn.parallel.DistributedDataParallel(net)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def fit(self, epochs):
        for epoch in range(self.start, epochs):
            self.sampler.set_epoch(epoch)
            for (x,) in self.loader:
                self.opt.zero_grad()
                self.net(x).square().mean().backward()
                self.opt.step()
            self.save(epoch)

    def save(self, epoch):
        if dist.get_rank() == 0:
            state = {"net": self.net.module.state_dict(), "opt": self.opt.state_dict(), "epoch": epoch}
            torch.save(state, SNAPSHOT)
        dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Runner().fit(2)
    Runner(resume=True).fit(4)
    dist.destroy_process_group()
