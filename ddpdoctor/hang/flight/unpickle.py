"""Reads pickles that may come from anybody: only containers, numbers and strings, never a class or a function."""

import io
import pickle
from typing import Any, BinaryIO, NoReturn

from ddpdoctor.text import shorten


class Refused(ValueError):
    """What was read is not plain data; the text says what it is instead."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        asked = shorten(ascii(f"{module}.{name}")[1:-1])
        raise Refused(f"it imports {asked}, and a dump has only numbers, strings, lists and dictionaries")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise Refused("it refers to objects outside itself")


def plain(source: bytes | BinaryIO) -> Any:
    """The containers, numbers and texts that a pickle holds; a file of it should have ``peek``, else every number is a
    call of ``read``. Memory is the caller's to limit (RLIMIT_AS): a few bytes can ask for gigabytes. Raises Refused
    where it would import something, is no pickle, or is cut short."""
    opened = io.BufferedReader(io.BytesIO(source)) if isinstance(source, bytes) else source
    try:
        return _Unpickler(opened).load()
    except Refused:
        raise
    except MemoryError:
        raise Refused("it requires more memory than a dump needs") from None
    except Exception as broken:  # noqa: BLE001 - the unpickler raises nearly everything on hostile bytes
        reason = shorten(ascii(str(broken))[1:-1])
        raise Refused(f"it is not a valid pickle: {type(broken).__name__}: {reason}") from None
