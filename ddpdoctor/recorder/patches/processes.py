"""Ranks that multiprocessing starts, torch.multiprocessing.spawn above all: their exceptions and their ends.

Such a process catches what its function raises and ends by os._exit, so neither sys.last_value nor atexit tell.
"""

from __future__ import annotations

import functools
import multiprocessing.process
from typing import Any

from ..patch import watch
from ..session import Session
from .ends import exit_status, tell_exit, tell_raised


def install(session: Session) -> None:
    """Watch the bodies of processes."""
    watched = functools.partial(watch, session.torch, lambda *_: True)
    ended, wrapped = functools.partial(_tell_end, session), functools.partial(_tell_wrapped, session)
    session.patch(multiprocessing.process.BaseProcess, "run", watched(ended))
    session.patch_function(("torch.multiprocessing.spawn",), "_wrap", watched(wrapped))


def _tell_end(session: Session, _: Any, __: Any, error: BaseException | None) -> None:
    if session.rank is None and session.in_worker:
        return
    if isinstance(error, SystemExit):
        tell_exit(session, "exit", status=exit_status(error.code))
    elif error is not None:
        tell_raised(session, error)
        tell_exit(session, "exception", status=1)
    else:
        tell_exit(session, "returned", status=0)


def _tell_wrapped(session: Session, _: Any, __: Any, error: BaseException | None) -> None:
    # It has caught the function's exception, put its text into a file and asked to exit.
    if isinstance(error, SystemExit) and error.__context__ is not None:
        tell_raised(session, error.__context__)
