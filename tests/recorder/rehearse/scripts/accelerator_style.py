# ruff: noqa - written as users write
"""The device-independent way: torch.accelerator, torch.amp, a generator on the device, a default device."""

import os

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

rank = int(os.environ["LOCAL_RANK"])
if hasattr(torch, "accelerator"):
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
    device = torch.accelerator.current_accelerator()
    torch.accelerator.set_device_index(rank)
    assert torch.accelerator.current_device_index() == rank
    torch.accelerator.synchronize()
else:
    device = torch.device("cuda")
    torch.cuda.set_device(rank)
assert device.type == "cuda"
dist.init_process_group(device_id=torch.device("cuda", rank))
assert dist.get_backend() == "nccl"


class Square(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        assert grad.is_cuda and x.device.index == rank
        return 2 * x * grad * torch.ones((), device="cuda")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(8))

    def part(self, x):
        mask = torch.ones(x.shape[-1], device="cuda")
        return torch.nn.functional.dropout(torch.tanh(self.inner(x)) * self.scale * mask, 0.1)

    def forward(self, x):
        x = checkpoint(self.part, x, use_reentrant=False)
        x = checkpoint(self.part, x, use_reentrant=True)
        q = x.view(1, 1, *x.shape).half()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            y = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        return Square.apply(y)


torch.set_default_device("cuda")
net = Net()
assert net.inner.weight.device == torch.device("cuda", rank)
torch.set_default_device(None)
with torch.device("cuda"):
    assert torch.zeros(2).is_cuda
ddp = DistributedDataParallel(net, device_ids=[rank])
generator = torch.Generator(device="cuda").manual_seed(3)
x = torch.randn(4, 8, generator=generator, device=device, requires_grad=True)
scaler = torch.amp.GradScaler(device.type)
optimizer = torch.optim.Adam(ddp.parameters())
with torch.amp.autocast(device.type, dtype=torch.float16):
    out = ddp(x)
    loss = out.sum()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
assert generator.device.type == "cuda" and x.grad.is_cuda
dist.destroy_process_group()
