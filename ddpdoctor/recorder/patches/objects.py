"""Object collectives that give every rank what every rank has: how many bytes each contributes."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..events.schema import Event
from ..patch import after_call
from ..where import Where

if TYPE_CHECKING:
    from ..session import Session

_HOME = "torch.distributed.distributed_c10d"
_GATHERING = "all_gather_object"
_LEAST = 4096
"""Bytes; less is a count, a name or a state."""


@dataclass(slots=True)
class GatheredObject(Event):
    """What this rank gave to a line that gathers objects on all ranks; written down where it is the largest so far."""

    time: float
    bytes: int
    at: Where | None = None


def install(session: Session) -> None:
    """Watch the function that turns objects into bytes."""
    if not session.torch.distributed.is_available():
        return
    largest: dict[object, int] = {}

    def tell(result: Any, args: Any, kwargs: Any) -> None:
        caller = sys._getframe(3)
        if caller.f_code.co_name != _GATHERING or (size := int(result[0].numel())) < _LEAST:
            return
        at = session.here()
        if size > largest.get(at, 0):
            largest[at] = size
            session.event(GatheredObject(time.monotonic(), size, at))

    session.patch_function((_HOME,), "_object_to_tensor", after_call(tell))
