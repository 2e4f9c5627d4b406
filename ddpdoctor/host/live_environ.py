"""The environment of a running process as it is now; /proc has what the process was started with."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Container
from functools import cache
from pathlib import Path

from ddpdoctor.host.proc import folder_of

_POINTER = 8
_MOST = 4096
"""Variables that are read."""
_LONGEST = 512
"""Bytes of one; those that number ranks and name hosts are shorter."""


def live_environ(pid: int, names: Container[str]) -> dict[str, str]:
    """Those of the variables that a process has now, as after ``os.environ["RANK"] = "1"`` in it.

    Empty where it may not be looked into, or has another C library than this process: the place of its variables is
    known from our own.
    """
    folder, place = folder_of(pid), _place()
    if folder is None or place is None:
        return {}
    file, offset = place
    try:
        start = next((start for start, of in _mappings(folder) if of == file), None)
        if start is None:
            return {}
        with (folder / "mem").open("rb", buffering=0) as memory:
            return _variables(memory.fileno(), start + offset, names)
    except OSError:
        return {}


@cache
def _place() -> tuple[str, int] | None:
    """The file that has C's ``environ``, and how far behind its beginning in memory that is."""
    try:
        address = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ"))
        mappings = _mappings(Path("/proc/self"))
    except (OSError, ValueError, TypeError):  # not Linux
        return None
    if ctypes.sizeof(ctypes.c_void_p) != _POINTER:
        return None
    # What is zero at first lies behind the last part of the file that has it, and belongs to no file.
    file = [of for start, of in mappings if start <= address][-1]
    return file, address - next(start for start, of in mappings if of == file)


def _mappings(folder: Path) -> list[tuple[int, str]]:
    """The beginning of each part of a process' memory that is a file's, with the device and inode of that file."""
    lines = (folder / "maps").read_text(errors="replace").splitlines()
    parts = [line.split(maxsplit=5) for line in lines]
    return [(int(part[0].partition("-")[0], 16), f"{part[3]} {part[4]}") for part in parts if part[4] != "0"]


def _variables(memory: int, place: int, names: Container[str]) -> dict[str, str]:
    array = int.from_bytes(os.pread(memory, _POINTER, place), "little")
    variables = {}
    for number in range(_MOST):
        address = int.from_bytes(os.pread(memory, _POINTER, array + number * _POINTER), "little")
        if not address:
            break
        text = os.pread(memory, _LONGEST, address).partition(b"\0")[0].decode(errors="replace")
        name, _, value = text.partition("=")
        if name in names:
            variables[name] = value
    return variables
