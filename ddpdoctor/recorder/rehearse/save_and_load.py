"""torch.save and torch.load: tensors are saved with their simulated GPU and come back to it, as on real ones."""

from __future__ import annotations

from typing import Any

import torch

from .devices import Devices, mark_storage, storage_gpu
from .plain_calls import refuse
from .replaced_attributes import Patches

_BEFORE_THE_CPU = 1
"""torch asks the packages that know a location in this order; its own begin with 10."""


def install(devices: Devices, patches: Patches) -> None:
    """Tell torch how the storages of simulated GPUs are saved and restored."""

    def restore(storage: Any, location: str) -> Any:
        """The deserializer: put a storage on the GPU that it was saved from or is mapped to."""
        if not location.startswith("cuda"):
            return None
        index = devices.index_of(location)
        count = devices.count()
        if index is None or index >= count:
            refuse(
                RuntimeError(
                    f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is "
                    f"{count}. Please use torch.load with map_location to map your storages to an existing device."
                )
            )
        devices.use(index)
        return mark_storage(storage, index)

    def tag(storage: Any) -> str | None:
        gpu = storage_gpu(storage)
        return None if gpu is None else f"cuda:{gpu}"

    registry = torch.serialization._package_registry
    entry = (_BEFORE_THE_CPU, tag, restore)
    registry.insert(0, entry)
    patches.on_undo(lambda: registry.remove(entry))
