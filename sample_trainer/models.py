"""The model, small enough to train on a CPU; the wrapper that trains it on several ranks; the optimizer."""

# mypy: allow-untyped-calls

import dataclasses
import importlib
import math
from collections.abc import Iterable
from typing import cast

import torch
from config import Config, Model, Optimizer, TrainerError
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR


def create_model(config: Config) -> nn.Module:
    """The model, with the weights that the default random generator gives."""
    return ByteTransformer(config.model, config.data.context)


class ByteTransformer(nn.Module):
    """Predicts each next byte from the bytes before it."""

    def __init__(self, model: Model, context: int) -> None:
        super().__init__()
        self.byte = nn.Embedding(256, model.width)
        self.position = nn.Embedding(context, model.width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                model.width,
                model.heads,
                4 * model.width,
                model.dropout,
                "gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(model.layers)
        )
        self.head = nn.Sequential(nn.LayerNorm(model.width), nn.Linear(model.width, 256))
        self.checkpoint_activations = model.checkpoint_activations

    def forward(self, inputs: Tensor) -> Tensor:
        length = inputs.shape[1]
        x = self.byte(inputs) + self.position(torch.arange(length, device=inputs.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=inputs.device)
        for block in self.blocks:
            if self.checkpoint_activations and self.training:
                # Keeps what goes in, and computes the rest again in backward. The reentrant variant would hide
                # the parameters from DDP, which has to see each of them once in the graph.
                x = torch.utils.checkpoint.checkpoint(block, x, mask, is_causal=True, use_reentrant=False)
            else:
                x = block(x, mask, is_causal=True)
        return cast(Tensor, self.head(x))


# --- In DistributedDataParallel -------------------------------------------------------------------------------

_SETTINGS = ("bucket_cap_mb", "find_unused_parameters", "static_graph", "gradient_as_bucket_view")


def wrap(model: nn.Module, config: Config, device: torch.device) -> DistributedDataParallel:
    """Give every rank the weights of rank 0, and have each backward average the gradients over the ranks."""
    ddp = config.ddp
    if config.train.precision == "float16" and device.type != "cuda":
        raise TrainerError("train.precision=float16 needs a GPU; on a CPU, use bfloat16")
    told = dataclasses.asdict(ddp)
    settings = {name: told[name] for name in _SETTINGS}
    # Onto the device before the wrap, and the optimizer after it: both keep references to the parameters.
    gpu = [device.index] if device.type == "cuda" else None
    wrapped = DistributedDataParallel(model.to(device), device_ids=gpu, **settings)
    if ddp.communication_hook == "float16":
        hooks = importlib.import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
        wrapped.register_comm_hook(None, hooks.fp16_compress_hook)  # None: the default process group
    if config.model.compile:
        # In place and after the wrap: names stay as they are, and the compiler breaks the graph where DDP
        # sends a bucket, so that communication still overlaps with backward.
        wrapped.compile()
    return wrapped


# --- The optimizer, and its learning rate over time -----------------------------------------------------------


def create_optimizer(parameters: Iterable[nn.Parameter], optimizer: Optimizer) -> torch.optim.Optimizer:
    if optimizer.name == "sgd":
        return torch.optim.SGD(
            parameters, optimizer.lr, momentum=optimizer.momentum, weight_decay=optimizer.weight_decay
        )
    return torch.optim.AdamW(parameters, optimizer.lr, weight_decay=optimizer.weight_decay)


def create_schedule(steps: torch.optim.Optimizer, optimizer: Optimizer, total: int) -> LambdaLR:
    """Rises in a line for ``warm_up`` steps; then stays, or falls along a cosine to zero after ``total`` steps."""

    def factor(step: int) -> float:
        if step < optimizer.warm_up:
            return (step + 1) / optimizer.warm_up
        if optimizer.schedule == "constant":
            return 1.0
        done = (step - optimizer.warm_up) / max(1, total - optimizer.warm_up)
        return 0.5 + 0.5 * math.cos(math.pi * min(1.0, done))

    return LambdaLR(steps, factor)


def planned_steps(config: Config, samples: int, world_size: int) -> int:
    """Optimizer steps of the whole run."""
    together = config.data.batch_size * world_size
    batches = samples // together if config.data.uneven == "drop" else math.ceil(samples / together)
    if not batches:
        raise TrainerError(
            f"{samples} training samples are less than one batch of {config.data.batch_size} on each of {world_size} "
            "ranks; use data.uneven=pad or a smaller data.batch_size"
        )
    steps = math.ceil(batches / config.train.accumulation)
    return config.train.epochs * min(steps, config.train.steps or steps)
