"""Waits for other ranks that are neither a backward nor a collective of the script's: torch's own, and handles."""

from __future__ import annotations

from typing import Any

from ..patch import IN_FULL, watch
from ..session import Session
from ..training import Training


def install(session: Session) -> None:
    """Watch what is waited for in the training steps that are written down in full."""
    distributed = session.torch.distributed
    if not distributed.is_available():
        return
    waits = Training.of(session).waits

    def briefly(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return IN_FULL if session.detailed else original(*args, **kwargs)

    def begin(*_: Any) -> bool | None:
        return waits.begin() or None

    def end(*_: Any) -> None:
        waits.end()

    watched = watch(session.torch, begin, end, briefly)
    session.patch(distributed.Work, "wait", watched)
    wrapper = session.torch.nn.parallel.DistributedDataParallel
    session.patch(wrapper, "_distributed_broadcast_coalesced", watched)  # of buffers, before a forward
