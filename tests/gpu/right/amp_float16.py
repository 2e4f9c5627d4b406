"""Mixed precision with float16: a scaler, unscaled gradients that are clipped, channels_last."""

import os

import torch
import torch.distributed as dist
from digest import leave_digest
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    torch.manual_seed(0)
    images, labels = torch.randn(512, 3, 32, 32), torch.randint(10, (512,))
    data = TensorDataset(images, labels)
    sampler = DistributedSampler(data, seed=1)
    loader = DataLoader(data, 32, sampler=sampler, pin_memory=True, num_workers=2, persistent_workers=True)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 10)).cuda()
    model = DDP(model.to(memory_format=torch.channels_last), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x = x.to("cuda", memory_format=torch.channels_last, non_blocking=True)
            y = y.to("cuda", non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    leave_digest(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
