"""The patches that may cure a finding, as edits of the user's files, and as a fix in the script's own words."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from ddpdoctor import registry
from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.edits import Edit, changed_lines
from ddpdoctor.fix.patches import patch_names, patches
from ddpdoctor.fix.source import Text
from ddpdoctor.model import Finding
from ddpdoctor.trace import Trace

_UNKNOWN = (LookupError, AttributeError, TypeError, ValueError, AssertionError, RecursionError, StopIteration)
"""What a patch raises that meets other nodes than it was written for: no reason to lose a report."""
Edits: TypeAlias = Mapping[Path, tuple[Edit, ...]]
"""By the absolute path of the file; of the files as they are in the project."""


@dataclass(frozen=True)
class Proposal:
    """A change that may cure a finding."""

    finding: Finding
    title: str
    edits: Edits
    tells: bool = False
    """Whether it says all of the finding's fix."""


def proposals(finding: Finding, trace: Trace, project: Project, refusals: list[str]) -> Iterator[Proposal]:
    """What may cure a finding, the preferred first.

    Args:
        refusals: is given why a patch cannot be made.
    """
    check = registry.by_code(finding.code)
    if check is not None and trace.framework in check.fix_with:
        refusals.append("a framework makes what would have to change; the fix is in its words")
        return
    project.learn(trace)
    for name in patch_names(finding.code):
        patch = patches()[name]
        try:
            title = patch.apply(Case(finding, trace, project))
            edits = {path: tuple(of_file) for path, of_file in project.take().items()}
            project.after(edits)
        except CannotPatch as refusal:
            project.take()
            refusals.append(str(refusal))
            continue
        except _UNKNOWN:
            project.take()
            refusals.append("the script is written in a way that the patch does not know")
            continue
        if edits:
            yield Proposal(finding, title, edits, patch.tells)


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
