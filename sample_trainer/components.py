"""The parts of a training's state, by what they are to the ranks.

REPLICATED   the same on every rank: weights, optimizer, scheduler, gradient scaler. That is verified to the
             bit before anything is written, for a checkpoint of replicas that differ is a checkpoint of none.
GLOBAL       one for the whole job, and rank 0's word: how far training has come.
PER_RANK     each rank's own: random states.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn

State = Mapping[str, Any]


class Kind(Enum):
    """What a component's state is to the ranks."""

    REPLICATED = "replicated"
    GLOBAL = "global"
    PER_RANK = "per rank"


@dataclass(frozen=True)
class Component:
    """One part of the state, as a checkpoint needs it."""

    kind: Kind
    part: Any
    """Anything with state_dict and load_state_dict."""
    replicated: Callable[[], State] | None = None
    """What of it must be equal on every rank; all of it where this is not given."""


class Buffers:
    """Each rank's own buffers, for a model whose buffers DDP does not broadcast. Load them after the model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def state_dict(self) -> State:
        return dict(self._model.named_buffers())

    def load_state_dict(self, state: State) -> None:
        self._model.load_state_dict(state, strict=False)


def components_of(
    model: nn.Module,
    replicated: dict[str, Any],
    progress: Any,
    device: torch.device,
    broadcast_buffers: bool,
) -> dict[str, Component]:
    """The components in the order in which they are loaded.

    Of the bare model, so that the file loads without DDP. Its buffers are rank 0's word: BatchNorm's averages differ
    between forwards, and DDP gives every rank those of rank 0 before each.

    Args:
        replicated: the same on every rank: optimizer, schedule, scaler.
        progress: how far the run has come.
        broadcast_buffers: whether DDP gives every rank rank 0's; otherwise each rank has its own.
    """
    parameters = lambda: {name: parameter.detach() for name, parameter in model.named_parameters()}  # noqa: E731
    return {
        "model": Component(Kind.REPLICATED, model, parameters),
        **({} if broadcast_buffers else {"buffers": Component(Kind.PER_RANK, Buffers(model))}),
        **{name: Component(Kind.REPLICATED, part) for name, part in replicated.items()},
        "progress": Component(Kind.GLOBAL, progress),
        # Last, since whatever is made before may draw from the generators.
        "random": Component(Kind.PER_RANK, RandomStates(device)),
    }


def seed_generators(seed: int) -> None:
    """Begin all of them anew on this rank: one that is left out is another in each run, whatever the seed."""
    random.seed(seed)
    torch.manual_seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


class RandomStates:
    """The states of the random generators of this rank: Python's, torch's, and NumPy's where that is loaded."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def state_dict(self) -> State:
        state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
        if self._device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self._device)
        if numpy := sys.modules.get("numpy"):
            name, keys, *rest = numpy.random.get_state()
            state["numpy"] = (name, keys.tolist(), *rest)
        return state

    def load_state_dict(self, state: State) -> None:
        random.setstate(state["python"])
        torch.set_rng_state(state["torch"])
        if "cuda" in state and self._device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self._device)
        if "numpy" in state and (numpy := sys.modules.get("numpy")):
            numpy.random.set_state(state["numpy"])


def checksum(state: Any) -> str:
    """A digest of a state, nested or not, its names and shapes: equal only where every bit is."""
    digest = hashlib.sha256()
    for name, leaf in leaves(state):
        if isinstance(leaf, Tensor):
            flat = leaf.detach().cpu().contiguous()
            digest.update(f"{name} {flat.dtype} {tuple(flat.shape)}".encode())
            digest.update(ctypes.string_at(flat.data_ptr(), flat.nbytes))
        else:
            digest.update(f"{name} {leaf!r}".encode())
    return digest.hexdigest()


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """What a nested state holds, by names such as ``state.0.exp_avg``."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(state, list | tuple):
        for number, value in enumerate(state):
            yield from leaves(value, f"{name}.{number}")
    else:
        yield name, state


def on_cpu(state: Any) -> Any:
    """The same without devices, so that it loads anywhere; what is in host memory is not copied."""
    if isinstance(state, Tensor):
        return state.detach().cpu()
    if isinstance(state, Mapping):
        return {name: on_cpu(value) for name, value in state.items()}
    return type(state)(map(on_cpu, state)) if type(state) in (list, tuple) else state
