"""What libraries, launchers and torch say when a job fails, and what each message is to the failure.

Recorded runs, hangs and job output all read this table. A message that names a problem is a row of the same type in
``messages`` of the check of that problem (:class:`ddpdoctor.check.Check`), and needs nothing else there.
"""

import importlib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any


class Says(Enum):
    """What a message is to the failure that it tells of."""

    CAUSE = "a problem is named"
    PEER_GONE = "a peer went away: whoever says so is healthy"
    PEER_LATE = "a peer did not come in time: whoever says so is healthy"
    PASSED_ON = "another process failed: the exception of a launcher"
    HELPER_DIED = "a process that this one started ended, and the message does not say why"
    LIBRARY = "a library failed, at a line of the script that is not to blame"
    AFTERMATH = "threads and monitors of a library say it after something else has failed"
    HARMLESS = "jobs that train well say it, too"


VICTIM = (Says.PEER_GONE, Says.PEER_LATE)


@dataclass(frozen=True)
class Message:
    """One row: how to know a message, and what it means."""

    pattern: str
    """A regular expression, searched in a line or in ``Type: message`` of an exception."""
    says: Says = Says.CAUSE
    headline: str = ""
    """Of the finding, with ``{rank}`` or ``{process}`` for whoever says it, and the named groups of the pattern."""
    why: str = ""
    """What it means, with the same fields; the page of the check says it where this is empty."""
    fix: str = ""
    """What to do; likewise."""
    likely: bool = False
    """Whether the problem is the likely cause of the message only."""


_GONE, _LATE, _PASSED_ON, _AFTER = Says.PEER_GONE, Says.PEER_LATE, Says.PASSED_ON, Says.AFTERMATH
TABLE = (
    Message(r"closed by (?:remote )?peer|Broken pipe", _GONE),
    Message(r"[Cc]onnection (?:was |likely )*(?:reset|closed|aborted)", _GONE),
    Message(r"pair\.cc.{0,20} connect \[.{0,60}refused|Connection refused, remote", _GONE),
    Message(r"ncclRemoteError|remote process (?:has )?exited", _GONE),
    Message(r"Socket recv failed|[Ss]ocketP(?:rogress|oll)", _GONE),
    Message(r"onnect to \S+<\d+> failed ?: Connection refused", _GONE),
    # One that goes on with its original reason passes that on: the row of the reason decides.
    Message(r"[Cc]ommunicator (?:has been|was) aborted(?!.{0,30}Original reason)|ncclCommAbort", _GONE),
    Message(r"connection to the C10d store has failed", _PASSED_ON),
    Message(r"failed to recv, got 0 bytes|recvValue failed|sendBytes failed", _GONE),
    Message(r"store->get\(.{0,80}got error: (?:Connection|Broken)", _GONE),
    Message(r"TCPStore.{0,40}(?:shut ?down|closed)", _GONE),
    Message(r"successfully reached monitoredBarrier", _GONE),
    Message(r"ActorDiedError|ActorUnavailableError|WorkerCrashedError", _GONE),
    Message(r"Timed out waiting \d+ ?ms|Application timeout caused pair closure", _LATE),
    Message(r"collective operation (?:timeout|timed out)|watchdog got stuck for", _LATE),
    Message(r"wait timeout after \d+ ?ms|Timed out after \d+ ?ms waiting", _LATE),
    Message(r"store->get\(.{0,80}got error(?!: (?:Connection|Broken))|[Ss]ocket [Tt]imeout", _LATE),
    Message(r"failed to pass monitored", _LATE),
    Message(r"timed out after .{0,40}(?:barrier|waiting for|worker)", _LATE),
    Message(
        r"^(?:[\w.]*\.)?(?:ChildFailedError|Process(?:Exited|Raised)Exception|SignalException|SIGTERMException"
        r"|SystemExit|KeyboardInterrupt|DistributedException|(?:Base)?ExceptionGroup|SparkException|Py4JJavaError)(?::|$)",
        _PASSED_ON,
    ),
    Message(r"DataLoader worker .*(?:exited unexpectedly|is killed by signal)", Says.HELPER_DIED),
    Message(r"process \d+ terminated with", Says.HELPER_DIED),
    Message(r"^(?:[\w.]*\.)?(?:DistBackendError|EnforceNotMet)\b", Says.LIBRARY),
    Message(r"\b[A-Za-z]{0,3}CCL [Ee]rror", Says.LIBRARY),
    Message(r"gloo/transport/|Gloo connectFullMesh failed|makeDeviceForHostname", Says.LIBRARY),
    Message(
        r"(?:CUDA|HIP) error: (?:(?:all )?CUDA-capable device\S* \S+ busy|unknown error|initialization error"
        r"|device not ready|operation not supported|driver shutting down|system not yet initialized)"
        r"|CUDA unknown error",
        Says.LIBRARY,
    ),
    Message(r"Proxy Call to rank|\[Proxy Service.{0,20}\] Failed to execute", _AFTER),
    Message(r"\[Service thread\] (?:Error encountered|Could not receive)", _AFTER),
    Message(r"Storing response for already completed", _AFTER),
    Message(r"Watchdog caught|[Ww]atchdog thread terminated|detected by watchdog", _AFTER),
    Message(r"Some NCCL operations have failed|To avoid data inconsistency|Timeout at NCCL work", _AFTER),
    Message(r"Heartbeat monitor timed out|dump (?:signal|debug info)|Terminating the process", _AFTER),
    Message(r"First PG on this rank|Observed flight recorder|Stack trace of the failed", _AFTER),
    Message(r"Failed to open lib|Failed to find CUDA library|NET/Plugin", Says.HARMLESS),
    Message(r"Call to ibv_(?:open_device|get_async_event) failed|Unable to open device", Says.HARMLESS),
    Message(r"greater than the maximum allowed|[Ii]gnor(?:ed|ing)\b|deprecated|Both NCCL_", Says.HARMLESS),
    Message(r"NUMA auto balancing|iommu=|speed from|GID table changed|GDRCOPY", Says.HARMLESS),
    Message(r"Cannot initialize CollNet", Says.HARMLESS),
)
"""The messages that name no problem."""


@cache
def pattern(*roles: Says) -> str:
    """A regular expression for the messages of these roles."""
    return "|".join(message.pattern for message in TABLE if message.says in roles)


def says(text: str, *roles: Says) -> bool:
    """Whether a line, or ``Type: message`` of an exception, says one of these."""
    return re.search(pattern(*roles), text) is not None


_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def words(*expressions: str) -> frozenset[str]:
    """Texts without digits, of which each match of these has one at least; none where letters of any case match."""
    return frozenset().union(*map(_words_of, expressions))


@cache
def _words_of(expression: str) -> frozenset[str]:
    return _words(_parser.parse(expression))


def _words(sequence: Any) -> frozenset[str]:
    """Of the texts that a sequence has to match one after the other, those that are longest where shortest."""
    choices: list[frozenset[str]] = []
    run = ""
    for code, value in sequence:
        operator = str(code)
        if operator == "LITERAL" and not chr(value).isdigit():
            run += chr(value)
        elif operator not in ("AT", "ASSERT", "ASSERT_NOT"):  # those match no character
            choices += [frozenset({run} - {""}), _words_inside(operator, value)]
            run = ""
    if sequence.state.flags & re.IGNORECASE:
        return frozenset()
    choices.append(frozenset({run} - {""}))
    return max(choices, key=lambda choice: min(map(len, choice), default=0))


def _words_inside(operator: str, value: Any) -> frozenset[str]:
    if operator == "BRANCH":
        branches = [_words(branch) for branch in value[1]]
        return frozenset().union(*branches) if all(branches) else frozenset()
    if operator == "SUBPATTERN":
        return frozenset() if value[1] & re.IGNORECASE else _words(value[3])
    return _words(value[2]) if operator.endswith("_REPEAT") and value[0] else frozenset()


_OF_RANKS = re.compile(
    r"[A-Z]CCL|[Gg]loo|c10d|TCPStore|pair\.cc|\b[Rr]anks?\b|collective|Distributed|Actor(?:Died|Unavailable)Error"
    r"|WorkerCrashedError"
)
_CLIENT = re.compile(r"/(?:site|dist)-packages/(?!torch/)|/(?:urllib|http|ssl|ftplib|smtplib)\b")
"""In the path of a frame: another package than torch, or Python's own clients of a network."""


def is_of_another_service(texts: Iterable[str], raised_in: Iterable[str]) -> bool:
    """Whether an exception is about a connection to what is no rank: a web server, a store of objects, a database. By
    ``Type: message`` of it and of those that caused it, and the files of their innermost frames."""
    if any(_OF_RANKS.search(text) for text in texts):
        return False
    return any(_CLIENT.search(file) for file in raised_in)
