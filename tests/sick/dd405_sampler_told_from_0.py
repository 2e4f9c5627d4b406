"""The loop goes on with the epoch of the checkpoint; the sampler is told how many epochs this process has done."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build():
    torch.manual_seed(3)
    model = DDP(nn.Linear(2, 1))
    return model, torch.optim.Adam(model.parameters())


def fit(model, optimizer, loader, epochs):
    for done, epoch in enumerate(epochs):
        loader.sampler.set_epoch(done)  # expect: DD405
        for (batch,) in loader:
            optimizer.zero_grad()
            (model(batch) - 1).square().mean().backward()
            optimizer.step()
        if dist.get_rank() == 0:
            state = {"net": model.module.state_dict(), "adam": optimizer.state_dict(), "begun": epoch + 1}
            torch.save(state, "state.pt")
        dist.barrier()


dist.init_process_group("gloo")
data = TensorDataset(torch.arange(96.0).reshape(48, 2) / 96)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model, optimizer = build()
fit(model, optimizer, loader, range(2))

model, optimizer = build()
state = torch.load("state.pt", map_location="cpu")
model.module.load_state_dict(state["net"])
optimizer.load_state_dict(state["adam"])
fit(model, optimizer, loader, range(state["begun"], 4))
dist.destroy_process_group()
