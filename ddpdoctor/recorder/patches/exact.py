"""The gradient of one process, where --exact asks for it: keeps what the first update needs, or replays it."""

from __future__ import annotations

import sys

from ..options import KEEP
from ..patch import Make, after_call, around
from ..session import Session


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
        make = around(lambda original, iterator: replay.instead_of(iterator, original(iterator)))
    iterators = session.torch.utils.data.dataloader
    for kind in (iterators._SingleProcessDataLoaderIter, iterators._MultiProcessingDataLoaderIter):
        session.patch(kind, "_next_data", make)
    session.install("optimizer")  # what is about to be compared is looked at first
    register = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook
    session.on_undo(register(lambda optimizer, *_: exact.updating(optimizer)).remove)
