"""The job that ``--world-size`` asks for: how large it is, and which of its ranks are processes here."""

from __future__ import annotations

import re

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.launch import Imagined
from ddpdoctor.redact import quote

NPROC = 8
"""Ranks on a host where nobody says otherwise: the GPUs of most machines that are rented by the hundred."""
_RANGE = re.compile(r"(\d+)(?:-(\d+))?$")


def imagined_of(options: CheckOptions) -> Imagined | None:
    """The job that the script is to see; None where all of its ranks are real.

    Raises:
        UsageError: it cannot be.
    """
    size = options.world_size
    if size is None:
        if options.ranks is not None:
            raise UsageError("--ranks requires --world-size")
        return None
    _refuse_others(options)
    nproc = min(options.nproc or NPROC, size)
    return Imagined(size, nproc, _chosen(options.ranks, size) if options.ranks else usual_ranks(size, nproc))


def usual_ranks(size: int, nproc: int) -> tuple[int, ...]:
    """A few ranks that differ in all that ranks differ in.

    The first two, the first of the second host, and the same counted from the end: so the mean of their numbers, and
    of whatever grows with a rank's number, is that of all ranks.
    """
    first = {rank for rank in (0, 1, nproc) if rank < size}
    return tuple(sorted(first | {size - 1 - rank for rank in first}))


def _refuse_others(options: CheckOptions) -> None:
    if not options.rehearse:
        raise UsageError("--world-size requires --rehearse")
    for name in ("rehearse_hosts", "exact"):
        if getattr(options, name):
            raise UsageError(f"--world-size and --{name.replace('_', '-')} exclude each other")
    if options.nnodes > 1:
        raise UsageError("--world-size and --nnodes exclude each other: the hosts are simulated")
    if options.words and options.words[0] == "--":
        raise UsageError(
            "--world-size requires a script or a module, not a command line: ddpdoctor check --rehearse "
            "--world-size N train.py"
        )


def _chosen(text: str, size: int) -> tuple[int, ...]:
    ranks: set[int] = set()
    for part in text.split(","):
        named = _RANGE.match(part.strip())
        if named is None:
            raise UsageError(f"--ranks {quote(text)} is not a list such as 0,1,8-11,511")
        first = int(named[1])
        last = int(named[2] or first)
        if not first <= last < size:
            raise UsageError(f"--ranks {quote(text)}: {part.strip()} is not in a job of {size} ranks")
        ranks.update(range(first, last + 1))
    if 0 not in ranks or len(ranks) < 2:
        raise UsageError(f"--ranks {quote(text)} needs rank 0 and at least one more")
    return tuple(sorted(ranks))
