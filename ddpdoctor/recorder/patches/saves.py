"""torch.save: written down before it begins and when it returns, so that a rank that was killed in between shows."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..buffers import tell_buffers
from ..checkpoints import Checkpoints, path_of
from ..events.files import Save
from ..guard import guarded
from ..traceback_frames import leave_out

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
        try:
            begun = begin(checkpoints, args, kwargs)
            checkpoints.saving += 1
            try:
                result = original(*args, **kwargs)
            finally:
                checkpoints.saving -= 1
            end(checkpoints, begun)
            return result
        except BaseException as passing:
            leave_out(passing)
            raise

    return save


@guarded
def begin(checkpoints: Checkpoints, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Save:
    """It is about to be entered."""
    given = [*args, *kwargs.values()]
    session = checkpoints.session
    described, at = checkpoints.describe(given[0]), session.here()
    tell_buffers(session, "save", at=at)
    save = Save(path_of(given[1]), at, time.monotonic(), id=checkpoints.next_save(), **described)
    save.numbers, save.states = checkpoints.numbers(given[0]), checkpoints.states(given[0])
    session.event(save, now=True)
    return save


@guarded
def end(checkpoints: Checkpoints, save: Save | None) -> None:
    """It returned."""
    if save is None:
        return
    save.end = time.monotonic()
    with suppress(OSError):
        save.size = os.stat(save.path).st_size
    checkpoints.session.event(save, now=True)
