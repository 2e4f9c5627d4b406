"""torch.load: what was read, where its tensors came to lie, or what it raised."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from ..checkpoints import Checkpoints, path_of
from ..events.files import Load
from ..patch import watch

if TYPE_CHECKING:
    from ..session import Make, Session


def install(session: Session) -> None:
    """Watch torch.load, and load_file of safetensors where the script uses it."""
    checkpoints = Checkpoints.of(session)
    end = functools.partial(_end, checkpoints)

    def watched(place: str) -> Make:
        return watch(session.torch, functools.partial(_begin, checkpoints, place), end)

    def watch_safetensors() -> None:
        session.patch_function(("safetensors.torch",), "load_file", watched("device"))

    session.patch_function(("torch.serialization", "torch"), "load", watched("map_location"))
    session.when_imported("safetensors.torch", watch_safetensors)


def _begin(checkpoints: Checkpoints, place: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Load:
    where = args[1] if len(args) > 1 else kwargs.get(place)
    shown = None if where is None else "function" if callable(where) else str(where)
    session = checkpoints.session
    path = path_of(args[0] if args else next(iter(kwargs.values())))
    number = checkpoints.next_load()
    load = Load(path, session.here(), time.monotonic(), map_location=shown, id=number)
    session.event(load, now=True)
    return load


def _end(checkpoints: Checkpoints, load: Load, result: Any, error: BaseException | None) -> None:
    load.end = time.monotonic()
    if error is not None:
        load.error = f"{type(error).__name__}: {error}"[:2000]
        checkpoints.session.event(load, now=True)
        return
    described = checkpoints.describe(result)
    load.entries, load.prefix = described["entries"], described["prefix"]
    load.numbers, load.states = checkpoints.numbers(result), checkpoints.states(result)
    load.devices = tuple(sorted({str(tensor.device) for tensor in checkpoints.tensors(result)}))
    checkpoints.session.event(load)
    checkpoints.remember(result, load.id)
