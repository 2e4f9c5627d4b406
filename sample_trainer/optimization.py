"""The optimizer, and its learning rate over time."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from config import Config, Optimizer, TrainerError
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


def create_optimizer(parameters: Iterable[nn.Parameter], optimizer: Optimizer) -> torch.optim.Optimizer:
    """AdamW or SGD."""
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
    """Optimizer steps of the whole run; about so many, where streams are cut differently on each rank."""
    together = config.data.batch_size * world_size
    batches = samples // together if config.data.uneven == "drop" else math.ceil(samples / together)
    if not batches:
        raise TrainerError(
            f"{samples} training samples are less than one batch of {config.data.batch_size} on each of {world_size} "
            "ranks; use data.uneven=pad or a smaller data.batch_size"
        )
    steps = math.ceil(batches / config.train.accumulation)
    return config.train.epochs * min(steps, config.train.steps or steps)
