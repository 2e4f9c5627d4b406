"""All that a training run is made of, declared by what it is to the ranks."""

from __future__ import annotations

from typing import Any

import torch
from components import (
    Component,
    Kind,
    buffers_component,
    component,
    model_component,
    random_component,
)
from torch import nn


def components_of(
    model: nn.Module,
    replicated: dict[str, Any],
    place: dict[str, Any],
    device: torch.device,
    broadcast_buffers: bool,
) -> dict[str, Component]:
    """The components in the order in which they are loaded.

    Args:
        replicated: the same on every rank: optimizer, schedule, scaler.
        place: how far the run has come.
        broadcast_buffers: whether DDP gives every rank rank 0's; otherwise each rank has its own.
    """
    return {
        "model": model_component(model),
        **({} if broadcast_buffers else {"buffers": buffers_component(model)}),
        **{name: component(Kind.REPLICATED, part) for name, part in replicated.items()},
        **{name: component(Kind.GLOBAL, part) for name, part in place.items()},
        # Last, since whatever is made before may draw from the generators.
        "random": random_component(device),
    }
