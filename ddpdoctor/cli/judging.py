"""The judging of what was examined into one report, which names hosts beside ranks where there are several."""

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddpdoctor import registry
from ddpdoctor.cli.page_sections import with_sections
from ddpdoctor.cli.request import Request
from ddpdoctor.judge import Verdict, compose, judge_further
from ddpdoctor.judge import judge as judge_all
from ddpdoctor.model import Finding, Report, Source
from ddpdoctor.text import listing, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.unreached.lines import UnreachedLines


class Judging:
    """The verdicts of one command, put together into its report; in the folder is kept what cannot go into that."""

    def __init__(self, request: Request, folder: Path) -> None:
        self.request, self.folder = request, folder
        self.started = time.monotonic()
        self.verdicts: list[Verdict] = []
        self.notes: list[str] = []
        self.run: dict[str, Any] = {}
        self.judged: Trace | None = None
        """The run that was judged."""
        self.hosts_of_ranks: dict[int, str] = {}
        """The host of each rank, as far as it is known."""
        self.since: float | None = None
        """When the run began that is judged, in seconds since the epoch; None where this command ran it."""
        self.unfinished: str | None = None
        """Why a source could not be examined to its end, where that is so."""

    def subfolder(self, name: str) -> Path:
        """A new folder for a part of the run."""
        folder = self.folder / name
        folder.mkdir()
        return folder

    def judge(self, source: Source, facts: Any) -> None:
        """Ask the checks of a source."""
        self.verdicts += judge_all(source, self.request.checks(source), facts, self.log)

    def log(self, text: str) -> None:
        """Write down what helps us, and nobody else."""
        with (self.folder / "run.log").open("a", encoding="utf-8") as log:
            log.write(text + "\n")

    def judge_lines(self, lines: UnreachedLines) -> None:
        """Judge the lines of a program to which no rank came, unless there are too many."""
        if lines.too_many:
            self.notes.append(lines.too_many)
            return
        checks = self.request.checks(Source.CODE)
        self.verdicts += judge_further(Source.CODE, checks, lines, self.log, self.verdicts)

    def cause_on_host(self) -> str | None:
        """The code of a host finding that explains why ranks cannot start or meet."""
        failed = (registry.by_code(verdict.code) for verdict in self.verdicts if verdict.failed)
        return next((check.code for check in failed if check and check.breaks_group), None)

    def compose(self) -> Report:
        """All of it as one report."""
        launch, job = self.request.host.launch, self.request.job
        run = {
            "nproc": launch.nproc,
            "nnodes": launch.nnodes,
            "backend": launch.backend,
            "torch": None,
            "script": job.name if job else None,
            **self.run,
        }
        if (line := hosts_line(self.hosts_of_ranks)) and any(verdict.findings for verdict in self.verdicts):
            self.notes.append(line)
        report = compose(
            [with_hosts(verdict, self.hosts_of_ranks) for verdict in self.verdicts],
            run,
            self.started,
            fail_on=self.request.fail_on,
            notes=self.notes,
            unfinished=self.unfinished,
            hides=self.request.silencer.hides,
            since=self.since,
        )
        report = replace(report, findings=self.in_own_words(report.findings))
        return with_sections(report, self.judged, self.request.options, self.log)

    def in_own_words(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings with fixes in the words of the user's script."""
        return findings


_RANKS = re.compile(
    r"\b(?:rank (?P<one>\d+)|ranks (?P<several>\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*))(?![\w'-])(?! on )"
)
_MOST = 3
"""Hosts named beside one group of ranks."""


def with_hosts(verdict: Verdict, hosts: Mapping[int, str]) -> Verdict:
    """The verdict whose headlines name the host of each rank; as it is where all ranks are on one host."""
    if len({*hosts.values()}) < 2:
        return verdict
    return verdict.with_each(
        lambda it: replace(it, headline=_RANKS.sub(lambda match: _with_names(match, hosts), it.headline))
    )


def hosts_line(hosts: Mapping[int, str]) -> str | None:
    """``ranks 0-3 on node0, ranks 4-7 on node1``; None where all are on one host."""
    names = dict.fromkeys(hosts.values())
    if len(names) < 2:
        return None
    ranks = {name: [rank for rank, host in hosts.items() if host == name] for name in names}
    return ", ".join(f"{ranks_phrase(here)} on {name}" for name, here in ranks.items())


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
