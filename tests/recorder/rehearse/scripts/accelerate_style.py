# ruff: noqa - written as users write
"""A library's device handling: it asks for everything first, picks a device, a backend and a precision, and gathers."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler


class State:
    def __init__(self, cpu=False):
        self.local = int(os.environ.get("LOCAL_RANK", -1))
        if torch.cuda.is_available() and torch.cuda.device_count() > 0 and not cpu:
            backend = "nccl" if dist.is_nccl_available() else "gloo"
            dist.init_process_group(backend=backend)
            self.device = torch.device("cuda", self.local)
            torch.cuda.set_device(self.device)
        else:
            raise AssertionError("no GPU was seen")
        self.backend = dist.get_backend()
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.bf16 = torch.cuda.is_bf16_supported() and torch.cuda.get_device_capability() >= (8, 0)
        properties = torch.cuda.get_device_properties(self.device)
        assert properties.total_memory > 2**30 and torch.cuda.get_device_name(0)

    def autocast(self):
        return (
            torch.autocast(self.device.type, dtype=torch.bfloat16) if self.bf16 else contextlib.nullcontext()
        )

    def gather(self, tensor):
        if tensor.ndim == 0:
            tensor = tensor.clone()[None]
        output = torch.empty(self.world * tensor.numel(), dtype=tensor.dtype, device=self.device)
        dist.all_gather_into_tensor(output, tensor.contiguous())
        return output.view(-1, *tensor.size()[1:])


def to_device(batch, device):
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    return batch.to(device, non_blocking=True) if hasattr(batch, "to") else batch


state = State()
assert state.backend == "nccl" and state.bf16
seed = 42
torch.manual_seed(seed)
torch.cuda.manual_seed_all(seed)
data = [{"x": torch.randn(6), "y": torch.tensor(i % 2)} for i in range(20)]
generator = torch.Generator()
generator.manual_seed(seed)
indices = list(BatchSampler(RandomSampler(range(20), generator=generator), 4, drop_last=False))
loader = DataLoader(data, batch_sampler=indices[state.rank :: state.world][:2], pin_memory=True)
model = torch.nn.Linear(6, 2).to(state.device)
model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[state.local], output_device=state.local)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(2):
    for step, batch in enumerate(loader):
        batch = to_device(batch, state.device)
        assert all(value.device == state.device for value in batch.values())
        context = contextlib.nullcontext() if step % 2 else model.no_sync()
        with context, state.autocast():
            logits = model(batch["x"])
            loss = torch.nn.functional.cross_entropy(logits.float(), batch["y"])
        loss.backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    with torch.inference_mode():
        scores = state.gather(model(torch.ones(3, 6, device=state.device)).argmax(-1))
    assert scores.shape == (3 * state.world,) and scores.device == state.device
states = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
torch.cuda.set_rng_state_all(states["cuda"])
for _ in SequentialSampler(range(2)):
    dist.barrier(device_ids=[state.local])
dist.destroy_process_group()
