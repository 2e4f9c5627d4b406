"""Ranks that multiprocessing starts, torch.multiprocessing.spawn above all: their exceptions and their ends.

Such a process catches what its function raises and ends by os._exit, so neither sys.last_value nor atexit tell.
"""

from __future__ import annotations

import functools
import multiprocessing.process
import sys
from collections.abc import Callable
from typing import Any

from ..guard import guarded
from ..session import Session
from ..traceback_frames import leave_out
from .ends import exit_status, tell_exit, tell_raised


def install(session: Session) -> None:
    """Watch the bodies of processes."""
    session.patch(multiprocessing.process.BaseProcess, "run", functools.partial(_watch_run, session))
    session.patch_function(("torch.multiprocessing.spawn",), "_wrap", functools.partial(_watch_wrap, session))


def _watch_run(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: Any) -> Any:
        try:
            result = original(self)
        except BaseException as error:
            leave_out(error)
            if isinstance(error, SystemExit):
                _tell_end(session, "exit", None, exit_status(error.code))
            else:
                _tell_end(session, "exception", error, 1)
            raise
        _tell_end(session, "returned", None, 0)
        return result

    return run


@guarded
def _tell_end(session: Session, how: str, error: BaseException | None, status: Any) -> None:
    if session.rank is None and session.in_worker:
        return
    if error is not None:
        tell_raised(session, error)
    tell_exit(session, how, status=status)


def _watch_wrap(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _wrap(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            leave_out(error)
            if isinstance(error, SystemExit):
                # It has caught the function's exception, put its text into a file and asked to exit.
                _tell_wrapped(session, error.__context__)
            raise

    return _wrap


@guarded
def _tell_wrapped(session: Session, error: BaseException | None) -> None:
    if error is not None and sys.exc_info()[0] is SystemExit:
        tell_raised(session, error)
