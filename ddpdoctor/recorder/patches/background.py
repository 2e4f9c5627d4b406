"""What the background thread does beside writing: says where the main thread is, and answers requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..guard import guarded
from ..heartbeat import Heartbeat
from ..stack_requests import Asked

if TYPE_CHECKING:
    from ..session import Session


def install(session: Session) -> None:
    """Have it look between two flushes."""
    session.writer.ticks += [guarded(Heartbeat(session).tick), guarded(Asked(session).look)]
