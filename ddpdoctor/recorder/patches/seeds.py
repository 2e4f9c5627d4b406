"""Seeding of the global random streams, by the script or by a function of a library that it calls."""

from __future__ import annotations

import functools
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..events.schema import Event
from ..patch import after_call
from ..session import Session
from ..where import Where

_MOST = 200
"""Calls that are written down; a script may seed before every sample."""


@dataclass(slots=True)
class Seeded(Event):
    """A global random stream was seeded."""

    time: float
    stream: str
    """``torch``, which is that of the GPUs too, ``numpy`` or ``python``."""
    value: int | None
    """None where it is no number."""
    at: Where | None = None


def install(session: Session) -> None:
    """Watch torch.manual_seed, random.seed and numpy.random.seed."""
    left = iter(range(_MOST))

    def look(stream: str, _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if session.in_worker or next(left, None) is None:
            return
        value: Any = args[0] if args else next(iter(kwargs.values()), None)
        number = int(value) if hasattr(value, "__index__") else None
        session.event(Seeded(time.monotonic(), stream, number, session.here()))

    def watch_numpy() -> None:
        session.patch(sys.modules["numpy.random"], "seed", after_call(functools.partial(look, "numpy")))

    seeded = after_call(functools.partial(look, "torch"))
    for holder in (session.torch.random, session.torch):  # each has its own, of one function
        session.patch(holder, "manual_seed", seeded)
    session.patch(random, "seed", after_call(functools.partial(look, "python")))
    session.when_imported("numpy.random", watch_numpy)
