"""Exceptions of a clean-up, which hide the one that made the script clean up."""

from __future__ import annotations

from dataclasses import replace

from ddpdoctor.program.handlers import cleanups
from ddpdoctor.recorder.events.process import Raised


def before_cleanup(raised: Raised) -> Raised:
    """The exception that would have ended the script, where another one was raised in a ``finally``, or before the
    ``raise`` of an ``except``; else the exception itself."""
    for frame in raised.frames:
        at_work = {handled.line for handled in raised.handling if handled.file == frame.file}
        for body, cleanup in cleanups(frame.file) if at_work else ():
            if at_work & set(body) and frame.line in cleanup and raised.causes:
                kind, _, message = raised.causes[-1].partition(": ")
                return replace(raised, type=kind, message=message, frames=raised.handling)
    return raised
