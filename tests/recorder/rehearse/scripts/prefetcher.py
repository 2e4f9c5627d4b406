# ruff: noqa - written as users write
"""Batches copied ahead on a side stream, times measured by events, memory statistics printed."""

import os

import torch
import torch.distributed as dist


class DataPrefetcher:
    def __init__(self, loader):
        self.loader = iter(loader)
        self.stream = torch.cuda.Stream()
        self.mean = torch.tensor([0.5, 0.5]).cuda().view(1, 2)
        self.preload()

    def preload(self):
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = None
            return
        with torch.cuda.stream(self.stream):
            self.next_input = self.next_input.cuda(non_blocking=True).float().sub_(self.mean)
            self.next_target = self.next_target.cuda(non_blocking=True)

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        data, target = self.next_input, self.next_target
        if data is not None:
            data.record_stream(torch.cuda.current_stream())
            self.preload()
        return data, target


dist.init_process_group(backend="nccl", init_method="env://")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
model = torch.nn.Linear(2, 2).cuda()
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
prefetcher = DataPrefetcher([(torch.randn(4, 2).pin_memory(), torch.randn(4, 2)) for _ in range(3)])
data, target = prefetcher.next()
steps = 0
while data is not None:
    start.record()
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.range_push("forward")
        loss = torch.nn.functional.mse_loss(model(data), target)
        torch.cuda.nvtx.range_pop()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    end.record()
    end.synchronize()
    torch.cuda.synchronize(torch.cuda.current_device())
    assert start.elapsed_time(end) > 0 and start.query()
    data, target = prefetcher.next()
    steps += 1
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
free, total = torch.cuda.mem_get_info()
assert 0 < free < total and 0 < torch.cuda.memory_allocated() <= torch.cuda.memory_reserved()
assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] > 0 and torch.cuda.memory_summary()
if os.environ["RANK"] == "0":
    print("steps", steps)
dist.destroy_process_group()
