"""How the script ends, or a rank that multiprocessing started: by its last line, sys.exit, os._exit or an exception.

Neither sys.excepthook nor a signal handler is touched. The interpreter leaves an exception that nobody caught in
``sys.last_value`` before it calls the hook; the background thread and the last atexit handler look there.
"""

import atexit
import functools
import multiprocessing.process
import os
import sys
import time
from collections.abc import Callable, Iterator
from traceback import walk_tb
from types import TracebackType
from typing import Any

from ..events.process import Exit, Raised
from ..patch import around, guarded, watch
from ..session import Part, Session
from ..where import Where, absolute

_LONGEST_MESSAGE = 8000
_MOST_FRAMES = 60
_MOST_WORKERS = 64
"""Forked processes whose records stay where they ended well: a job of days starts DataLoader workers every epoch."""


class _Ends(Part):
    raised = False

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.asked: dict[str, Any] = {}

    def look(self) -> None:
        """Write down the exception that ended the main thread, once, where there is one."""
        if (error := getattr(sys, "last_value", None)) is not None and not self.raised:
            tell_raised(self.session, error)
            self.raised = True

    def at_exit(self) -> None:
        """The script is over; what the process does after this is nobody's fault."""
        self.look()
        how = "exception" if self.raised else "exit" if self.asked else "returned"
        tell_exit(self.session, how, **self.asked)

    def exit(self, original: Callable[..., Any], status: Any = None) -> Any:
        self.asked = {"at": self.session.here(), "status": exit_status(status)}
        error = sys.exc_info()[1]
        if self.asked["status"] and isinstance(error, Exception) and not self.session.in_worker:
            guarded(tell_raised)(self.session, error)  # it is caught, and ends the rank, as in hydra.main
        return original(status)

    def exit_hard(self, original: Callable[..., Any], status: int) -> Any:
        """Somebody calls os._exit; the script's own excepthook may be who does."""
        if not self.session.in_worker:
            guarded(self.look)()
            guarded(tell_exit)(self.session, "os._exit", at=self.session.here(), status=exit_status(status))
        return original(status)


def install(session: Session) -> None:
    """Watch the ways out of the main module."""
    ends = _Ends(session)
    atexit.register(guarded(ends.at_exit))
    session.writer.ticks.append(guarded(ends.look))
    session.patch(sys, "exit", around(ends.exit))
    session.patch(os, "_exit", around(ends.exit_hard))
    _watch_processes(session)


def tell_raised(session: Session, error: BaseException) -> None:
    """Write an exception down, with its frames and what led to it."""
    raised = Raised(
        _name(error),
        str(error)[:_LONGEST_MESSAGE],
        time.monotonic(),
        frames=tuple(_frames(error.__traceback__))[-_MOST_FRAMES:],
        at=session.sites.of_traceback(error.__traceback__),
        causes=tuple(f"{_name(cause)}: {cause}"[:_LONGEST_MESSAGE] for cause in _causes(error)),
        handling=tuple(_frames(_handled(error)))[-_MOST_FRAMES:],
        of_rehearsal=session.options.rehearse and _is_of_rehearsal(session, error),
    )
    session.event(raised, now=True)


def tell_exit(session: Session, how: str, *, at: Where | None = None, status: Any = None) -> None:
    """Write the end of the script down and close the record, once: what multiprocessing does after it is its own."""
    if session.ended:
        return
    session.ended = True
    while session.before_end:
        guarded(session.before_end.pop())(how)
    if session.in_worker and how == "returned" and session.forks > _MOST_WORKERS:
        session.writer.discard()
        return
    session.event(Exit(how, time.monotonic(), status, at), now=True)
    session.writer.trim()


def _is_of_rehearsal(session: Session, error: BaseException) -> bool:
    from ..rehearse.replacing import is_own_fault
    from ..rehearse.simulated_hosts import ImaginedJob, missing_file

    job = ImaginedJob.of_environment(os.environ)
    return any(
        missing_file(it, job)
        or is_own_fault(str(it), tuple(_frames(it.__traceback__)), session.sites.is_foreign)
        for it in (*_causes(error), error)
    )


def _name(error: BaseException) -> str:
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def _frames(trace: TracebackType | None) -> Iterator[Where]:
    for frame, line in walk_tb(trace):
        yield Where(absolute(frame.f_code.co_filename), line, frame.f_code.co_name)


def _handled(error: BaseException) -> TracebackType | None:
    """The traceback of what was being handled when an exception was raised, other than by ``raise ... from``."""
    before = None if error.__cause__ or error.__suppress_context__ else error.__context__
    return before.__traceback__ if before is not None else None


def _causes(error: BaseException) -> list[BaseException]:
    """The chain behind an exception as Python prints it, the first of them first."""
    chain: list[BaseException] = []
    while len(chain) < 10:
        before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if before is None or before in chain:
            break
        chain.insert(0, before)
        error = before
    return chain


def exit_status(status: Any) -> int:
    """What the parent sees of what sys.exit was given: None is 0, a message is 1, and -1 is 255, no signal."""
    return status & 0xFF if isinstance(status, int) else int(status is not None)


def _watch_processes(session: Session) -> None:
    """Watch the bodies of processes that multiprocessing starts, torch.multiprocessing.spawn above all: they catch what
    they raise and end by os._exit, so neither sys.last_value nor atexit tell."""
    watched = functools.partial(watch, session.torch, lambda *_: True)
    ended = functools.partial(_tell_end_of_process, session)
    session.patch(multiprocessing.process.BaseProcess, "run", watched(ended))
    wrapped = functools.partial(_tell_wrapped, session)
    session.patch_function(("torch.multiprocessing.spawn",), "_wrap", watched(wrapped))


def _tell_end_of_process(session: Session, _: Any, __: Any, error: BaseException | None) -> None:
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
