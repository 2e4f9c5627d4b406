"""torch.save: written down before it begins and when it returns, so that a rank that was killed in between shows."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..buffers import tell_buffers
from ..checkpoints import Checkpoints, path_of
from ..guard import guarded

if TYPE_CHECKING:
    from ..session import Session


def install(session: Session) -> None:
    """Watch torch.save, and save_file of safetensors where the script uses it."""
    watch = functools.partial(_watch, Checkpoints.of(session))
    session.patch_function(("torch.serialization", "torch"), "save", watch)
    session.when_imported(
        "safetensors.torch", lambda: session.patch_function(("safetensors.torch",), "save_file", watch)
    )


def _watch(checkpoints: Checkpoints, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        number = begin(checkpoints, args, kwargs)
        checkpoints.saving += 1
        try:
            result = original(*args, **kwargs)
        finally:
            checkpoints.saving -= 1
        end(checkpoints, number)
        return result

    return save


@guarded
def begin(checkpoints: Checkpoints, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, str]:
    """It is about to be entered."""
    given = [*args, *kwargs.values()]
    number, path = checkpoints.next_save(), path_of(given[1])
    session = checkpoints.session
    described, at = checkpoints.describe(given[0]), session.here()
    tell_buffers(session, "save", at=at)
    session.event("save.begin", at=at, now=True, id=number, path=path, **described)
    return number, path


@guarded
def end(checkpoints: Checkpoints, begun: tuple[int, str] | None) -> None:
    """It returned."""
    if begun is None:
        return
    number, path = begun
    size = None
    with suppress(OSError):
        size = os.stat(path).st_size
    checkpoints.session.event("save.end", now=True, id=number, size=size)
