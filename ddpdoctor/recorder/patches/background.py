"""What the background thread does beside writing: says where the main thread is, and answers requests."""

from __future__ import annotations

from ..guard import guarded
from ..heartbeat import Heartbeat
from ..session import Session
from ..stack_requests import Asked


def install(session: Session) -> None:
    """Have it look between two flushes."""
    session.writer.ticks += [guarded(Heartbeat(session).tick), guarded(Asked(session).look)]
