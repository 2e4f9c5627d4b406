"""The hosts that Ray Train lost, as the exception says that it raises in the program which started the workers."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ddpdoctor.trace import LostHost
from ddpdoctor.trace.recording import Recording

_WORKER = re.compile(r"^\[Rank (?P<rank>\d+) Error Snippet\]:$(?P<text>.*?)(?=^\[Rank |\Z)", re.M | re.S)
_HOST = re.compile(r"^ +hostname='(?P<host>[^'\n]+)',$", re.M)
_GONE = re.compile(r"^The actor \w+ is unavailable: |its node has died", re.M)
"""Of a worker alone that died, the daemon of Ray on its host says so, for which Ray waits a second."""
_REASON = "Ray does not reach it any more"


def lost_hosts(processes: Iterable[Recording]) -> tuple[LostHost, ...]:
    """The hosts whose workers Ray Train could not reach any more, with their ranks.

    Args:
        processes: those that are no rank; the program is one of them.
    """
    ranks: dict[str, list[int]] = {}
    for message in (process.raised.message for process in processes if process.raised):
        for worker in _WORKER.finditer(message):
            host = _HOST.search(worker["text"])
            if host and _GONE.search(worker["text"]):
                ranks.setdefault(host["host"], []).append(int(worker["rank"]))
    return tuple(LostHost(host, tuple(sorted(of_host)), _REASON) for host, of_host in ranks.items())
