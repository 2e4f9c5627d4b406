"""Tells an exception that a survivor, a launcher or a killed helper raised from one that names a cause."""

import math
import re
import signal
from collections.abc import Iterator

from ddpdoctor import failures
from ddpdoctor.blame.frames import asked_the_store, raised_in, tells_of_a_peer
from ddpdoctor.failures import Says
from ddpdoctor.logs.log import Ended, Log, Raised
from ddpdoctor.recorder.launchers import COMMANDS

_STARTS_RANKS = re.compile("|".join((r"python|\.py\b", *COMMANDS)))
"""In the command of a CalledProcessError: a program whose own output tells why it failed."""


def is_of_another_service(raised: Raised) -> bool:
    """Whether it tells of a connection to something that is no rank: a web server, a store of objects, a database."""
    links = raised.chain
    files = (raised_in(link.frames) for link in links)
    return failures.is_of_another_service([link.text for link in links], files)


def speaks_of_a_peer(raised: Raised) -> bool:
    """Whether it says no more than that a peer is gone or did not come."""
    return tells_of_a_peer(*((link.text, link.frames) for link in raised.chain))


def waited_in_vain(raised: Raised) -> bool:
    """Whether it says that a wait for the others ran out of time."""
    return _says(raised, Says.PEER_LATE) and not asked_the_store(raised.kind, raised.frames)


def is_of_a_library(raised: Raised) -> bool:
    """Whether NCCL, gloo or CUDA's driver raised it: at a line of the script that is not to blame for it."""
    return _says(raised, Says.LIBRARY)


def _says(raised: Raised, role: Says) -> bool:
    return any(failures.says(link.text, role) for link in raised.chain)


def is_of_the_launcher(raised: Raised) -> bool:
    """Whether it only passes on that a process failed."""
    if raised.kind.endswith("CalledProcessError"):
        return raised.line.rank is None or _STARTS_RANKS.search(raised.message) is not None
    return failures.says(raised.text, Says.PASSED_ON) or _says(raised, Says.HELPER_DIED)


def was_left_alone(raised: Raised) -> bool:
    """Whether a process that was being started got nothing to run, since its parent failed to hand it over."""
    starts = any(frame.function == "spawn_main" for frame in raised.frames)
    return starts and raised.kind in ("EOFError", "_pickle.UnpicklingError", "BrokenPipeError")


def first_cause(log: Log) -> Raised | None:
    """The first exception that ended a process for a reason of its own. Files of single ranks have no common order;
    there the launcher's word counts, where it is in the output."""
    causes = own_causes(log)
    if len({item.line.file for item in causes}) > 1:
        failed = (end.rank for end in _own_ends(log) if end.code > 0)
        first = next((rank for rank in failed if rank is not None), None)
        causes = [item for item in causes if item.rank == first] or causes if first is not None else causes
    return causes[0] if causes else None


def own_causes(log: Log) -> list[Raised]:
    """The exceptions that ended a process for a reason of its own, in order."""
    excluded = (speaks_of_a_peer, is_of_the_launcher, is_of_a_library)
    causes = [raised for raised in log.fatal if not any(test(raised) for test in excluded)]
    of_no_store = [raised for raised in causes if not asked_the_store(raised.kind, raised.frames)]
    if of_no_store or not causes:
        return of_no_store or _failed_commands(log)
    raised_by = {raised.rank for raised in log.fatal}
    ended_otherwise = (end for end in _own_ends(log) if end.code < 0 or end.rank not in raised_by)
    return [] if any(ended_otherwise) else causes  # the store lacks what that process did not live to set


def _own_ends(log: Log) -> Iterator[Ended]:
    """The ends by a failure of which no launcher was the reason."""
    return (end for end in log.ended if end.code and end.pid not in log.stopped)


def _failed_commands(log: Log) -> list[Raised]:
    """The failed command of a script, where no rank failed that a command which starts ranks would pass on."""
    first = next(log.fatal, None)
    if first is None or not first.kind.endswith("CalledProcessError") or _STARTS_RANKS.search(first.message):
        return []
    at = first.line.position
    passed_on = any(end.code < 0 or end.line.position < at for end in _own_ends(log))
    return [] if passed_on or log.waits or not all(map(is_of_the_launcher, log.fatal)) else [first]


def ranks_of(log: Log, raised: Raised) -> tuple[int, ...]:
    """The ranks that this exception ended: those that raised one of its type at its line, but for a lost peer."""
    same = (
        link.rank
        for other in log.raised
        if not speaks_of_a_peer(other)
        for link in other.chain
        if link.rank is not None and (link.kind, link.where) == (raised.kind, raised.where)
    )
    return tuple(sorted({*same, *(() if raised.rank is None else (raised.rank,))}))


def first_death(log: Log) -> Ended | None:
    """The process that a signal ended first, and not because a launcher stopped it after another's failure."""
    killed = [end for end in _own_ends(log) if end.code < 0]
    rest = None if has_failed(log) else next(iter(killed), None)  # SIGTERM came after that failure
    return next((end for end in killed if end.code != -signal.SIGTERM), rest)


def has_failed(log: Log, before: float = math.inf) -> bool:
    """Whether a rank raised, gave up or ended otherwise than by SIGTERM before the line of this position, so that who
    was stopped later is a victim."""
    raised = (raised.line for raised in (*filter(waited_in_vain, log.fatal), *own_causes(log)))
    ends = (end.line for end in log.ended if end.code not in (0, -signal.SIGTERM))
    lines = (*raised, *(wait.line for wait in log.waits), *ends)
    return any(line.position < before for line in lines)
