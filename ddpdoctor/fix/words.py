"""The fix of a finding in the script's own words: the lines that its patch would change, without a run."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Project
from ddpdoctor.fix.edits import changed_lines
from ddpdoctor.fix.propose import Proposal, proposals
from ddpdoctor.fix.source import Text
from ddpdoctor.model import Finding
from ddpdoctor.trace import Trace

_MOST_LINES = 6
"""Of a fix; of a longer one the patch shows more."""
_MOST_FINDINGS = 20


def in_own_words(
    findings: Iterable[Finding], trace: Trace, folder: Path, as_it_ran: Callable[[Path], bool]
) -> tuple[Finding, ...]:
    """The findings; those whose patch says all of their fix with its lines in place of the general ones.

    Args:
        folder: the working directory of the run.
        as_it_ran: whether a file has the content that it had in the run.
    """
    project = Project(folder, as_it_ran=as_it_ran)
    project.learn(trace)
    findings = iter(findings)
    first = [_told(finding, trace, project) for finding in islice(findings, _MOST_FINDINGS)]
    return (*first, *findings)


def _told(finding: Finding, trace: Trace, project: Project) -> Finding:
    if finding.where is None:
        return finding
    with contextlib.suppress(CannotPatch):
        proposal = next(proposals(finding, trace, project, []), None)
        words = "\n".join(_lines(proposal, project)) if proposal is not None and proposal.tells else ""
        if words and words.count("\n") < _MOST_LINES:
            return replace(finding, fix=words, mechanical=True)
    return finding


def _lines(proposal: Proposal, project: Project) -> Iterator[str]:
    """What stands in place of which lines, or before which."""
    for path, raw in project.after(proposal.edits).items():
        first, second = project.source(str(path)).text, Text(path, raw).text
        where = proposal.finding.where
        elsewhere = where is None or project.path(where.file) != path
        for line, removed, text in changed_lines(first, second):
            code, *others = textwrap.dedent(text).strip("\n").split("\n")
            last = f"-{line + removed - 1}" if removed > 1 else ""
            place = f"{'in place of' if text else 'without'} line{'s' * (removed > 1)} {line}{last}"
            place = place if removed else f"before line {line}"
            yield f"{code}    # {place}{f' of {path.name}' if elsewhere else ''}".strip()
            yield from others
