"""A communication hook that compresses, a fused optimizer, an average of the weights, a checkpoint and its restart."""

import os

import torch
import torch.distributed as dist
from digest import leave_digest
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = DDP(
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda(), device_ids=[local_rank]
    )
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    generator = torch.Generator("cuda").manual_seed(dist.get_rank())

    def train(steps):
        for _ in range(steps):
            x = torch.randn(32, 64, device="cuda", generator=generator)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            average.update_parameters(model.module)

    train(6)
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
    dist.barrier(device_ids=[local_rank])
    state = torch.load("last.pt", map_location=f"cuda:{local_rank}")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(6)
    leave_digest(average.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
