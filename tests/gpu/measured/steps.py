"""Steps of about 10 ms: the time of each, how often a step waits for the GPU, the most memory that tensors took.

Writes them to $MEASURED as JSON.
"""

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile

STEPS, PROFILED = 660, 50  # no step from 641 to 767 is written down in full


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    layers = [layer for _ in range(48) for layer in (nn.Linear(1024, 1024), nn.GELU(), nn.Dropout(0.1))]
    model = DDP(nn.Sequential(*layers).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = torch.randn(int(os.environ.get("ROWS", "4096")), 1024, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    times = []
    for _ in range(STEPS):
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILED):
            step()
    waits = {
        event.key: event.count / PROFILED
        for event in profiler.key_averages()
        if "Synchronize" in event.key or event.key == "aten::item"
    }
    Path(os.environ["MEASURED"]).write_text(
        json.dumps({"times": times, "waits": waits, "memory": torch.cuda.max_memory_allocated()})
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
