"""The names of hosts beside ranks, in a job of several hosts: ``ranks 4-7 on node1``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from ddpdoctor.judge import Verdict
from ddpdoctor.model import Finding
from ddpdoctor.text import listing, ranks_phrase

_RANKS = re.compile(
    r"\b(?:rank (?P<one>\d+)|ranks (?P<several>\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*))(?![\w'-])(?! on )"
)
_MOST = 3
"""Hosts named beside one group of ranks."""


def with_hosts(verdict: Verdict, hosts: Mapping[int, str]) -> Verdict:
    """The verdict whose headlines name the hosts of ranks; as it is where all ranks are on one host.

    Args:
        hosts: the host of each rank.
    """
    if len({*hosts.values()}) < 2:
        return verdict
    return replace(verdict, findings=tuple(_named(finding, hosts) for finding in verdict.findings))


def hosts_line(hosts: Mapping[int, str]) -> str | None:
    """``ranks 0-3 on node0, ranks 4-7 on node1``; None where all are on one host."""
    names = dict.fromkeys(hosts.values())
    if len(names) < 2:
        return None
    ranks = {name: [rank for rank, host in hosts.items() if host == name] for name in names}
    return ", ".join(f"{ranks_phrase(here)} on {name}" for name, here in ranks.items())


def _named(finding: Finding, hosts: Mapping[int, str]) -> Finding:
    return replace(finding, headline=_RANKS.sub(lambda match: _with_names(match, hosts), finding.headline))


def _with_names(match: re.Match[str], hosts: Mapping[int, str]) -> str:
    ranks = _ranks(match["one"] or match["several"])
    names = [name for name in dict.fromkeys(hosts.values()) if any(hosts.get(rank) == name for rank in ranks)]
    known = all(rank in hosts for rank in ranks)
    before = match.string[: match.start()]
    # All ranks of the job, or a number that is no rank; or a host with its ranks in parentheses.
    if not known or len(names) == len({*hosts.values()}) or before.endswith(f"{names[0]} ("):
        return match[0]
    return f"{match[0]} on {listing(names, _MOST)}"


def _ranks(text: str) -> list[int]:
    ranks: list[int] = []
    for part in text.split(", "):
        first, _, last = part.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    return ranks
