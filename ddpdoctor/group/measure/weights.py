"""Whether replicas built from different seeds are equal under DDP, and its gradients those of one process."""

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpdoctor.group.context import Context

SECONDS = 20.0
FEATURES = 8
STEPS = 3
SAMPLES = 8
TOLERANCE = 1e-9
"""Of the largest element. float64 rounds each of some hundred additions at 1e-16, in an order that differs
between one process and several; a missing average is off by more than a tenth."""


def measure(context: Context) -> dict[str, Any]:
    """``difference`` from rank 0's replica and ``gradient`` from the reference, None where there is none."""
    ddp = wrap(context, build_model(context.rank, context.device))
    wrapped = first_difference(context, "after the wrap", ddp.module)
    _train(context, ddp)
    gradient = _gradient_error(context, ddp)
    # Only here are buffers equal: a forward takes rank 0's, and one in train mode then changes them.
    trained = first_difference(context, f"after {STEPS} optimizer steps", ddp.module)
    return {"difference": wrapped or trained, "gradient": gradient, "tensors": len(ddp.module.state_dict())}


def _train(context: Context, ddp: nn.Module) -> None:
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        context.step(f"DDP training step {step}")
        optimizer.zero_grad()
        backward(ddp, *batch(_seed(step, context.rank), SAMPLES, context.device))
        optimizer.step()


def _seed(step: int, rank: int) -> int:
    return 1000 * rank + step


def _gradient_error(context: Context, ddp: DistributedDataParallel) -> dict[str, Any] | None:
    """The first parameter whose gradient is not that of one process on all ranks' samples together. In eval mode, where
    BatchNorm does not depend on how samples are divided."""
    ddp.eval()
    ddp.zero_grad()
    context.step("DDP step of which the gradients are compared")
    backward(ddp, *batch(_seed(STEPS, context.rank), SAMPLES, context.device))
    alone = copy.deepcopy(ddp.module)
    alone.zero_grad()
    parts = [batch(_seed(STEPS, rank), SAMPLES, context.device) for rank in range(context.world_size)]
    everything, targets = (torch.cat(part) for part in zip(*parts, strict=True))
    backward(alone, everything, targets)
    expected = dict(alone.named_parameters())
    pairs = ((name, parameter.grad, expected[name].grad) for name, parameter in ddp.module.named_parameters())
    return next((wrong for pair in pairs if (wrong := gradient_difference(*pair))), None)


def gradient_difference(
    name: str, gradient: torch.Tensor | None, expected: torch.Tensor | None
) -> dict[str, Any] | None:
    """The element furthest from the reference, where it is beyond rounding."""
    assert expected is not None, "every parameter of our model takes part"
    gradient = torch.zeros_like(expected) if gradient is None else gradient
    distance = (gradient - expected).abs().flatten()
    if bool(distance.max() <= TOLERANCE * expected.abs().max()):
        return None
    index = int(distance.argmax())
    got, right = (values.flatten()[index].item() for values in (gradient, expected))
    return {"tensor": name, "element": index, "got": got, "expected": right}


# -- a small model in DDP, and the comparison of its replicas with rank 0's -------------------------------------


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
    own, root = (values.flatten()[index].item() for values in (tensor, reference))
    return {"tensor": name, "element": index, "own": own, "rank_0": root}


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.flatten()
    return flat.view(torch.int64) if flat.dtype is torch.float64 else flat
