"""Reads pickles that may come from anybody: only containers, numbers and strings, never a class or a function."""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn


class Refused(ValueError):
    """What was read is not plain data; the text says what it is instead."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise Refused(
            f"it asks for {module}.{name}, and a dump has only numbers, texts, lists and dictionaries"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise Refused("it refers to objects outside itself")


def plain(data: bytes) -> Any:
    """The containers, numbers and texts that a pickle holds.

    Memory is the caller's to limit (RLIMIT_AS): a few bytes can ask for gigabytes.

    Raises:
        Refused: it would import something, or it is no pickle, or is cut short.
    """
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except Refused:
        raise
    except MemoryError:
        raise Refused("it asks for more memory than a dump needs") from None
    except Exception as broken:  # noqa: BLE001 - the unpickler raises nearly everything on hostile bytes
        raise Refused(f"it is no complete pickle: {type(broken).__name__}: {broken}") from None
