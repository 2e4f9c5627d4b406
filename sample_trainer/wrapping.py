"""The model in DistributedDataParallel, with what the configuration says about it."""

# mypy: allow-untyped-calls

from __future__ import annotations

import importlib
import inspect
from typing import Any, cast

import torch
import torch.distributed as dist
from config import Config, TrainerError
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# The name since torch 2.13, and the one before.
_PARAMETERS = inspect.signature(DistributedDataParallel).parameters
_BUFFERS = "forward_sync_buffers" if "forward_sync_buffers" in _PARAMETERS else "broadcast_buffers"


def wrap(model: nn.Module, config: Config, device: torch.device) -> DistributedDataParallel:
    """Give every rank the weights of rank 0, and have each backward average the gradients over the ranks."""
    ddp = config.ddp
    if config.train.precision == "float16" and device.type != "cuda":
        raise TrainerError("train.precision=float16 needs a GPU; on a CPU, use bfloat16")
    if ddp.sync_batch_norm:
        if device.type != "cuda":
            raise TrainerError("ddp.sync_batch_norm needs GPUs: torch has no SyncBatchNorm for CPUs")
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    buffers: Any = {_BUFFERS: ddp.broadcast_buffers}
    # Onto the device before the wrap, and the optimizer after it: both keep references to the parameters.
    wrapped = DistributedDataParallel(
        model.to(device),
        device_ids=[device.index] if device.type == "cuda" else None,
        bucket_cap_mb=ddp.bucket_cap_mb,
        find_unused_parameters=ddp.find_unused_parameters,
        static_graph=ddp.static_graph,
        gradient_as_bucket_view=ddp.gradient_as_bucket_view,
        **buffers,
    )
    _register_hook(wrapped, ddp.communication_hook)
    if config.model.compile:
        # In place and after the wrap: names stay as they are, and the compiler breaks the graph where DDP
        # sends a bucket, so that communication still overlaps with backward.
        wrapped.compile()
    return wrapped


def _register_hook(wrapped: DistributedDataParallel, name: str) -> None:
    """Send gradients in another form than they have."""
    if name == "bfloat16" and dist.get_backend() != "nccl":
        raise TrainerError("ddp.communication_hook=bfloat16 needs NCCL; float16 works everywhere")
    if name in ("float16", "bfloat16"):
        hooks = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
        hook = hooks.fp16_compress_hook if name == "float16" else hooks.bf16_compress_hook
        wrapped.register_comm_hook(None, hook)  # None: the default process group
    elif name == "power_sgd":
        try:
            power_sgd = cast(
                Any, importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook")
            )
        except ImportError:
            raise TrainerError("ddp.communication_hook=power_sgd needs NumPy: pip install numpy") from None
        # It starts as a plain all-reduce, since gradients change most in the first steps.
        state = power_sgd.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
        wrapped.register_comm_hook(state, power_sgd.powerSGD_hook)
