"""torch.load: what was read, where its tensors came to lie, or what it raised."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..checkpoints import Checkpoints, path_of
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
        number = _begin(checkpoints, place, args, kwargs)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            _failed(checkpoints, number, error)
            raise
        _end(checkpoints, number, result)
        return result

    return load


@guarded
def _begin(checkpoints: Checkpoints, place: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    number = checkpoints.next_load()
    where = args[1] if len(args) > 1 else kwargs.get(place)
    shown = None if where is None else "function" if callable(where) else str(where)
    session = checkpoints.session
    path = path_of(args[0] if args else next(iter(kwargs.values())))
    session.event("load.begin", at=session.here(), now=True, id=number, path=path, map_location=shown)
    return number


@guarded
def _failed(checkpoints: Checkpoints, number: int | None, error: BaseException) -> None:
    text = f"{type(error).__name__}: {error}"[:2000]
    checkpoints.session.event("load.end", now=True, id=number, error=text)


@guarded
def _end(checkpoints: Checkpoints, number: int | None, result: Any) -> None:
    if number is None:
        return
    checkpoints.session.event(
        "load.end",
        id=number,
        **checkpoints.describe(result),
        numbers=checkpoints.numbers(result),
        states=checkpoints.states(result),
        devices=sorted({str(tensor.device) for tensor in checkpoints.tensors(result)}),
    )
    checkpoints.remember(result, number)
