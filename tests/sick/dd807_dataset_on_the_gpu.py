"""A dataset puts its samples on the GPU, inside a forked worker."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info


def to_gpu(tensor):
    if get_worker_info() is not None:  # what CUDA says there
        raise RuntimeError(  # expect: DD807
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
            "'spawn' start method"
        )
    return tensor


class Samples(Dataset):
    def __len__(self):
        return 8 * dist.get_world_size()

    def __getitem__(self, index):
        return to_gpu(torch.tensor([index / 10]))


dist.init_process_group("gloo")
sampler = DistributedSampler(Samples())
loader = DataLoader(Samples(), batch_size=2, sampler=sampler, num_workers=1)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in loader:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
