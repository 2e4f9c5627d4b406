# ruff: noqa - written as users write
"""A worker function with argparse, SyncBatchNorm, meters over all ranks, and a checkpoint with map_location."""

import argparse
import os

import torch
import torch.backends.cudnn as cudnn
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32, device="cuda")
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


def main_worker(gpu, args):
    if torch.cuda.is_available() and not args.cpu:
        torch.cuda.set_device(gpu)
        cudnn.benchmark = True
    else:
        raise SystemExit("no GPU")
    dist.init_process_group(backend=args.dist_backend, init_method=args.dist_url)
    assert dist.get_backend() == "nccl"
    model = nn.SyncBatchNorm.convert_sync_batchnorm(network()).cuda(gpu)
    model = DistributedDataParallel(model, device_ids=[gpu], output_device=gpu)
    criterion = nn.CrossEntropyLoss().cuda(gpu)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    data = TensorDataset(torch.randn(32, 3, 8, 8), torch.randint(0, 4, (32,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=0, pin_memory=True)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        meter = Meter()
        for images, target in loader:
            images = images.cuda(gpu, non_blocking=True)
            target = target.cuda(gpu, non_blocking=True)
            output = model(images)
            loss = criterion(output, target)
            assert loss.device == torch.device("cuda", gpu)
            _, guess = output.topk(2, 1, True, True)
            guess.t().eq(target.view(1, -1).expand_as(guess.t()))
            meter.update(loss.item(), images.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        meter.all_reduce()
        assert meter.count == 32
        scheduler.step()
    path = os.path.join(args.folder, "checkpoint.pth.tar")
    if dist.get_rank() == 0:
        torch.save({"epoch": 2, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    dist.barrier()
    checkpoint = torch.load(path, map_location=f"cuda:{gpu}")
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert all(value.device.index == gpu for value in checkpoint["state_dict"].values())
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist-url", default="env://")
    parser.add_argument("--dist-backend", default="nccl")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--folder", default=os.environ.get("FOLDER", "."))
    main_worker(int(os.environ["LOCAL_RANK"]), parser.parse_args())
