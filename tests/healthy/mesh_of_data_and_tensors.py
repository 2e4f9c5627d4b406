"""A device mesh: ranks of a tensor group hold parts of one model and share their batches, data groups divide them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn.functional import all_reduce
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
ranks = dist.get_world_size()
width = next(size for size in (2, 3) if ranks % size == 0)
mesh = init_device_mesh("cpu", (ranks // width, width), mesh_dim_names=("data", "tensor"))
data_group, tensor_group = mesh.get_group("data"), mesh.get_group("tensor")


class Columns(nn.Module):
    """Each rank of a tensor group has some hidden units."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 12 // width), nn.Linear(12 // width, 1, bias=False)

    def forward(self, x):
        return all_reduce(self.down(self.up(x).relu()), group=tensor_group)


torch.manual_seed(mesh.get_local_rank("tensor"))
model = Columns()
torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 6), torch.randn(96, 1))
sampler = DistributedSampler(data, num_replicas=mesh["data"].size(), rank=mesh.get_local_rank("data"))
loader = DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=data_group)
            parameter.grad /= mesh["data"].size()
        optimizer.step()
dist.destroy_process_group()
