"""torch.save and torch.load: tensors are saved with their imaginary GPU and come back to it, as on real ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .devices import Devices, mark_storage, storage_gpu
from .undo import Patches

_BEFORE_THE_CPU = 1
"""torch asks the packages that know a location in this order; its own begin with 10."""


def install(devices: Devices, patches: Patches, record: Callable[..., None]) -> None:
    """Tell torch how the storages of imaginary GPUs are saved and restored."""
    loads = _Loads(devices, record)

    def tag(storage: Any) -> str | None:
        gpu = storage_gpu(storage)
        return None if gpu is None else f"cuda:{gpu}"

    registry = torch.serialization._package_registry
    entry = (_BEFORE_THE_CPU, tag, loads.restore)
    registry.insert(0, entry)
    patches.on_undo(lambda: registry.remove(entry))
    patches.set(torch, "load", loads.watch(torch.load))
    patches.set(torch.serialization, "load", torch.load)


class _Loads:
    """Which imaginary GPUs the tensors of each torch.load came to."""

    def __init__(self, devices: Devices, record: Callable[..., None]) -> None:
        self._devices = devices
        self._record = record
        self._restored: set[int] = set()
        self._told: set[tuple[tuple[int, ...], bool]] = set()

    def restore(self, storage: Any, location: str) -> Any:
        """The deserializer: put a storage on the GPU that it was saved from or is mapped to."""
        if not location.startswith("cuda"):
            return None
        index = self._devices.index_of(location)
        count = self._devices.count()
        if index is None or index >= count:
            raise RuntimeError(
                f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is {count}. "
                "Please use torch.load with map_location to map your storages to an existing device."
            )
        self._devices.use(index)
        self._restored.add(index)
        return mark_storage(storage, index)

    def watch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
            self._restored = set()
            loaded = original(f, map_location, *args, **kwargs)
            self._tell(tuple(sorted(self._restored)), map_location is not None)
            return loaded

        return load

    def _tell(self, indices: tuple[int, ...], mapped: bool) -> None:
        if indices and (indices, mapped) not in self._told:
            self._told.add((indices, mapped))
            current = self._devices.thread.current
            self._record("device.load", indices=list(indices), map_location=mapped, current=current)
