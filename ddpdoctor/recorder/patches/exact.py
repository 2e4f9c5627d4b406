"""The gradient of one process, where --exact asks for it: keeps what the first update needs, or replays it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..options import KEEP
from ..patch import after_call
from ..traceback_frames import leave_out

if TYPE_CHECKING:
    from ..exact import Keep, Replay
    from ..session import Make, Session


def install(session: Session) -> None:
    """Stand between DataLoaders and loops, and before the first update; nothing where it was not asked for."""
    wanted = session.options.exact
    if not wanted:
        return
    from ..exact import Keep, Replay

    exact: Keep | Replay
    make: Make
    if wanted == KEEP:
        exact = keep = Keep(session)
        make = after_call(lambda batch, args, kwargs: keep.took(args[0], batch))
    else:
        exact = replay = Replay(session, wanted)
        make = functools.partial(_replace, replay)
    iterators = session.torch.utils.data.dataloader
    for kind in (iterators._SingleProcessDataLoaderIter, iterators._MultiProcessingDataLoaderIter):
        session.patch(kind, "_next_data", make)
    session.install("optimizer")  # what is about to be compared is looked at first
    register = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook
    session.on_undo(register(lambda optimizer, *_: exact.updating(optimizer)).remove)


def _replace(exact: Replay, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _next_data(self: Any) -> Any:
        try:
            return exact.instead_of(self, original(self))
        except BaseException as passing:
            leave_out(passing)
            raise

    return _next_data
