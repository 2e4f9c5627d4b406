"""Leaves our frames out of the tracebacks of exceptions that pass through them to the user."""

from __future__ import annotations

import ctypes
import os
import sys
from types import TracebackType
from typing import Any

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_REHEARSE = os.path.join(_OURS, "rehearse") + os.sep
_OF_THE_SCRIPT = ("", "plain", "refuse")
"""Functions of the rehearsal that call what the script called, or raise what it would get on GPUs."""


def leave_out(error: BaseException) -> None:
    """Take what stands first of a traceback off it, as far as it is ours.

    To be called in the ``except`` through which the exception goes on by a bare ``raise``, which adds no frame. Frames
    stay where the rehearsal itself is at fault, which is told by them.
    """
    trace, name = error.__traceback__, ""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        code = trace.tb_frame.f_code
        name = code.co_name if code.co_filename.startswith(_REHEARSE) else name
        trace = trace.tb_next
    if name not in _OF_THE_SCRIPT:
        return
    error.__traceback__ = trace
    if sys.version_info < (3, 11):
        _handle(type(error), error, trace)


def _handle(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Have the interpreter handle an exception with another traceback: before 3.11, a bare raise takes its own."""
    python: Any = ctypes.pythonapi
    python.Py_IncRef.restype = python.PyErr_SetExcInfo.restype = None
    values = [ctypes.py_object(value) for value in (kind, error, trace)]
    for value in values:  # it keeps what it is given
        python.Py_IncRef(value)
    python.PyErr_SetExcInfo(*values)
