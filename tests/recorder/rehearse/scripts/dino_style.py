# ruff: noqa - written as users write
"""Student and teacher, a centre averaged over ranks, gradients cancelled and clipped, everything by .cuda()."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 8))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(8, 10, bias=False))

    def forward(self, x):
        return self.last(nn.functional.normalize(self.mlp(x), dim=-1, p=2))


class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, 10))

    def forward(self, student, teacher):
        target = torch.softmax((teacher - self.center) / 0.04, dim=-1).detach()
        loss = torch.sum(-target * torch.log_softmax(student / 0.1, dim=-1), dim=-1).mean()
        self.update_center(teacher)
        return loss

    @torch.no_grad()
    def update_center(self, teacher):
        center = torch.sum(teacher, dim=0, keepdim=True)
        dist.all_reduce(center)
        self.center = self.center * 0.9 + center / (len(teacher) * dist.get_world_size()) * 0.1


def init_distributed_mode():
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        print("Does not support training without GPU.")
        sys.exit(1)
    rank, world, gpu = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    dist.init_process_group(backend="nccl", init_method="env://", world_size=world, rank=rank)
    torch.cuda.set_device(gpu)
    dist.barrier()
    return gpu


gpu = init_distributed_mode()
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
student, teacher = Head().cuda(), Head().cuda()
student = nn.SyncBatchNorm.convert_sync_batchnorm(student)
teacher = nn.SyncBatchNorm.convert_sync_batchnorm(teacher)
teacher = nn.parallel.DistributedDataParallel(teacher, device_ids=[gpu])
student = nn.parallel.DistributedDataParallel(student, device_ids=[gpu])
teacher.module.load_state_dict(student.module.state_dict())
for p in teacher.parameters():
    p.requires_grad = False
criterion = Loss().cuda()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
fp16_scaler = torch.cuda.amp.GradScaler()
images = [torch.randn(6, 12) for _ in range(3)]
for step, image in enumerate(images):
    began = time.time()
    image = image.cuda(non_blocking=True)
    with torch.cuda.amp.autocast(fp16_scaler is not None):
        loss = criterion(student(image), teacher(image))
    optimizer.zero_grad()
    fp16_scaler.scale(loss).backward()
    fp16_scaler.unscale_(optimizer)
    for name, p in student.named_parameters():
        if p.grad is not None:
            assert p.grad.is_cuda
            coefficient = 3.0 / (p.grad.data.norm(2) + 1e-6)
            if coefficient < 1:
                p.grad.data.mul_(coefficient)
        if step < 1 and "last" in name:
            p.grad = None
    fp16_scaler.step(optimizer)
    fp16_scaler.update()
    with torch.no_grad():
        for q, k in zip(student.module.parameters(), teacher.module.parameters(), strict=True):
            k.data.mul_(0.99).add_(0.01 * q.detach().data)
    torch.cuda.synchronize()
    megabytes = torch.cuda.max_memory_allocated() / 1024.0**2
    assert megabytes > 0 and time.time() >= began
norms = torch.tensor([sum(p.sum() for p in student.parameters()).item()], device="cuda")
gathered = [torch.zeros_like(norms) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, norms)
assert len({value.item() for value in gathered}) == 1, gathered
dist.destroy_process_group()
