"""Exceptions of a clean-up, which hide the one that made the script clean up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.trace.syntax import lines, parsed


def before_cleanup(raised: Raised) -> Raised:
    """The exception that would have ended the script, where another one was raised in a ``finally``, or before the
    ``raise`` of an ``except``; else the exception itself."""
    for frame in raised.frames:
        at_work = {handled.line for handled in raised.handling if handled.file == frame.file}
        tree = parsed(frame.file) if at_work else None
        for body, cleanup in _cleanups(tree) if tree else ():
            if at_work & set(body) and frame.line in cleanup and raised.causes:
                kind, _, message = raised.causes[-1].partition(": ")
                return replace(raised, type=kind, message=message, frames=raised.handling)
    return raised


def _cleanups(tree: ast.Module) -> Iterator[tuple[range, range]]:
    """The lines of what may fail, and of what then runs before its exception goes on."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            again = (handler.body for handler in node.handlers if _raises_again(handler))
            yield from ((lines(*node.body), lines(*cleanup)) for cleanup in (*again, node.finalbody))
            yield from ((lines(*handler.body), lines(*node.finalbody)) for handler in node.handlers)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None
