"""torch.load: what was read, where its tensors came to lie, or what it raised."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..checkpoints import Checkpoints, path_of
from ..events.files import Load
from ..guard import guarded

if TYPE_CHECKING:
    from ..session import Session


def install(session: Session) -> None:
    """Watch torch.load, and load_file of safetensors where the script uses it."""
    watch = functools.partial(_watch, Checkpoints.of(session))
    session.patch_function(("torch.serialization", "torch"), "load", functools.partial(watch, "map_location"))

    def watch_safetensors() -> None:
        session.patch_function(("safetensors.torch",), "load_file", functools.partial(watch, "device"))

    session.when_imported("safetensors.torch", watch_safetensors)


def _watch(checkpoints: Checkpoints, place: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        begun = _begin(checkpoints, place, args, kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            _failed(checkpoints, begun, error)
            raise
        _end(checkpoints, begun, result)
        return result

    return load


@guarded
def _begin(checkpoints: Checkpoints, place: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Load:
    where = args[1] if len(args) > 1 else kwargs.get(place)
    shown = None if where is None else "function" if callable(where) else str(where)
    session = checkpoints.session
    path = path_of(args[0] if args else next(iter(kwargs.values())))
    number = checkpoints.next_load()
    load = Load(path, session.here(), time.monotonic(), map_location=shown, id=number)
    session.event(load, now=True)
    return load


@guarded
def _failed(checkpoints: Checkpoints, load: Load | None, error: BaseException) -> None:
    if load is not None:
        load.end, load.error = time.monotonic(), f"{type(error).__name__}: {error}"[:2000]
        checkpoints.session.event(load, now=True)


@guarded
def _end(checkpoints: Checkpoints, load: Load | None, result: Any) -> None:
    if load is None:
        return
    load.end = time.monotonic()
    described = checkpoints.describe(result)
    load.entries, load.prefix = described["entries"], described["prefix"]
    load.numbers, load.states = checkpoints.numbers(result), checkpoints.states(result)
    load.devices = tuple(sorted({str(tensor.device) for tensor in checkpoints.tensors(result)}))
    checkpoints.session.event(load)
    checkpoints.remember(result, load.id)
