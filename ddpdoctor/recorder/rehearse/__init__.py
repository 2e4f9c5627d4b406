"""The rehearsal: a script written for GPUs and NCCL runs on the CPU with gloo, unmodified.

Loaded inside the user's process, once torch was imported, under a private name: relative imports, the standard library
and the user's torch. Tensors are ordinary CPU tensors with a note of the GPU that they were meant for (``devices``);
a function mode (``placement``) keeps that note. ``docs/rehearse.md`` tells what it can and cannot show.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ..events.process import Device, Note
from .undo import Patches

Record = Callable[[Device | Note], None]


def install(record: Record, *, hosts: int = 1) -> Callable[[], None]:
    """Put the rehearsal in place; answers what undoes it.

    ``record(event)`` gets a few events: each GPU that is set, or used for the first time, and what cannot be shown.
    """
    from . import machine

    patches = Patches()
    before = machine.divide(hosts, os.environ, sys.argv)
    patches.on_undo(lambda: machine.restore(before, os.environ))
    note = _noter(record)
    if hosts > 1 and machine.HOST not in os.environ:
        note(
            "hosts",
            "the launcher sets no LOCAL_RANK, so the ranks could not be divided among imaginary hosts",
        )
    try:
        _install(patches, record, note)
    except BaseException:
        patches.undo()
        raise
    return patches.undo


def _install(patches: Patches, record: Record, note: Callable[[str, str], None]) -> None:
    """Everything in order: later rules build on earlier ones."""
    from . import (
        averages,
        batchnorm,
        checkpoints,
        compiler,
        cuda,
        driver,
        gathers,
        groups,
        machine,
        moves,
        placement,
        precision,
        randomness,
        saved,
        wrappers,
    )
    from .devices import Devices
    from .streams import Streams

    devices = Devices(record, machine.Host())
    mode = placement.Placement(devices)
    streams = Streams(devices, note)
    driver.install(devices, streams, patches)
    cuda.install(mode, streams, patches, note)
    moves.install(mode, patches)
    randomness.install(mode, patches)
    precision.install(mode, patches)
    batchnorm.install(mode, patches)
    wrappers.install(mode, patches, note)
    checkpoints.install(devices, patches)
    compiler.install(patches, note)
    groups.Groups(devices, note).install(patches)
    averages.install(patches)
    gathers.install(patches)
    saved.install(mode, patches)
    placement.install(mode, patches)


def _noter(record: Record) -> Callable[[str, str], None]:
    noted: set[str] = set()

    def note(topic: str, text: str) -> None:
        """What the rehearsal cannot do faithfully, once each."""
        if topic not in noted:
            noted.add(topic)
            record(Note("rehearsal", text))

    return note
