"""The rehearsal: a script written for GPUs and NCCL runs on the CPU with gloo, unmodified.

Loaded inside the user's process, once torch was imported, under a private name: relative imports, the standard library
and the user's torch. Tensors are ordinary CPU tensors with a note of the GPU that they were meant for;
a function mode keeps that note (``devices``). ``docs/rehearse.md`` tells what it can and cannot show.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ..events.process import Device, Note
from .replacing import Note as Tell
from .replacing import Patches

Record = Callable[[Device | Note], None]


def install(record: Record) -> Callable[[], None]:
    """Put the rehearsal in place; answers what undoes it. ``record(event)`` gets a few events: each GPU that is set, or
    used for the first time, and what cannot be shown."""
    patches = Patches()
    try:
        _install(patches, record, _noter(record))
    except BaseException:
        patches.close()
        raise
    return patches.close


def _install(patches: Patches, record: Record, note: Tell) -> None:
    """Everything in order: later rules build on earlier ones."""
    import torch

    from . import (
        cuda,
        gpu_only,
        imagined_collectives,
        precision,
        process_groups,
        simulated_hosts,
        tensor_methods,
    )
    from .devices import Devices, Placement, cover_threads
    from .simulated_hosts import ImaginedJob
    from .streams import Streams

    devices = Devices(record, simulated_hosts.Host())
    mode = Placement(devices)
    cuda.install(mode, Streams(devices, note), patches, note)
    tensor_methods.install(mode, patches)
    precision.install(mode, patches)
    gpu_only.install(mode, patches, note)
    if (job := ImaginedJob.of_environment(os.environ)) is not None and torch.distributed.is_available():
        groups = imagined_collectives.ImaginedGroups(job)
        groups.install(patches)
        imagined_collectives.install(groups, patches, note)
    process_groups.Groups(devices, note).install(patches)
    cover_threads(mode, patches)


def _noter(record: Record) -> Tell:
    noted: set[str] = set()

    def note(topic: str, text: str) -> None:
        if topic not in noted:
            noted.add(topic)
            record(Note("rehearsal", text))

    return note
