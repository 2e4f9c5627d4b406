"""The states of a training's parts, nested dictionaries and lists of tensors: compared, and made loadable anywhere."""

import ctypes
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

State = Mapping[str, Any]


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
