"""Which lines of the script are reached in each training step, and what its branches go by."""

from __future__ import annotations

import os
import sys

from ..guard import guarded
from ..lines import Lines
from ..session import Session


def install(session: Session) -> None:
    """Observe the script's lines from now on."""
    lines = Lines.of(session)
    if sys.version_info >= (3, 12):
        from ..line_monitor import LineMonitor

        monitor = LineMonitor(lines)
        session.on_undo(monitor.undo)
        lines.begin(monitor)
    else:
        from ..line_trace import LineTrace

        trace = LineTrace(lines)
        session.patch(sys, "gettrace", trace.gettrace)
        session.writer.ticks.append(guarded(trace.tick))
        lines.begin(trace)
    session.on_undo(lines.stop)
    session.writer.ticks.append(guarded(lines.write))
    session.before_end.append(lines.end)
    session.when_opened.append(lines.open_step)
    if not session.options.full:
        session.when_quiet_step_begins.append(lines.updated)
    os.register_at_fork(after_in_child=guarded(lines.forked))
