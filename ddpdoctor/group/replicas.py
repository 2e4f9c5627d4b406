"""A small model in DDP, and the comparison of its replicas with rank 0's."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpdoctor.group.context import Context

FEATURES = 8


def build_model(seed: int, device: torch.device) -> nn.Module:
    """Two layers and a BatchNorm, which has buffers; float64, where no GPU rounds to TF32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = (nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 1))
    return nn.Sequential(*layers).to(device=device, dtype=torch.float64)


def wrap(context: Context, model: nn.Module) -> DistributedDataParallel:
    """The model in DDP, on this rank's device."""
    context.step("DistributedDataParallel(model)")
    return DistributedDataParallel(
        model, device_ids=[context.device] if context.device.type == "cuda" else None
    )


def backward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """Add the gradients of a batch to those of the parameters."""
    torch.autograd.backward(nn.functional.mse_loss(model(x), y))


def batch(seed: int, count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples and targets that every rank can draw again from the seed."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator, dtype=torch.float64)
    return x.to(device), x.sum(1, keepdim=True).sin().to(device)


def first_difference(context: Context, when: str, model: nn.Module) -> dict[str, Any] | None:
    """Rank 0's tensors are broadcast and compared bit by bit; None where this rank's are the same."""
    first = None
    for name, tensor in model.state_dict().items():
        reference = tensor.clone()
        context.step(f"broadcast {name} {when}")
        dist.broadcast(reference, 0)
        first = first or difference(name, tensor, reference)
    return first and {"when": when, **first}


def difference(name: str, tensor: torch.Tensor, reference: torch.Tensor) -> dict[str, Any] | None:
    """The first element whose bits differ; comparing bits, NaN equals itself."""
    unequal = (_bits(tensor) != _bits(reference)).nonzero()
    if not len(unequal):
        return None
    index = int(unequal[0])
    return {
        "tensor": name,
        "element": index,
        "own": tensor.flatten()[index].item(),
        "rank_0": reference.flatten()[index].item(),
    }


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.flatten()
    return flat.view(torch.int64) if flat.dtype is torch.float64 else flat
