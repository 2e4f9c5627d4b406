"""The patches that may cure a finding, as edits of the user's files, and as a fix in the script's own words."""

from __future__ import annotations

import ast
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
from ddpdoctor.fix.edits import Edit, Text, changed_lines
from ddpdoctor.fix.patches import patch_names, patches
from ddpdoctor.fix.script_names import in_names_of
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
    leaves_choice: bool = False
    """Whether the finding's fix names other ways, too."""


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
            yield Proposal(finding, title, edits, patch.leaves_choice)


_MOST_LINES = 6
"""Of a fix; of a longer one the patch shows more."""
_MOST_FINDINGS = 20


def in_own_words(
    findings: Iterable[Finding], trace: Trace, folder: Path, as_it_ran: Callable[[Path], bool]
) -> tuple[Finding, ...]:
    """The findings with their fixes in the script's words: the lines of a patch that says all of it, else its names.

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
    with contextlib.suppress(CannotPatch, *_UNKNOWN):
        proposal = next(proposals(finding, trace, project, []), None)
        words = "\n".join(_lines(proposal, project)) if proposal and not proposal.leaves_choice else ""
        if words and words.count("\n") < _MOST_LINES:
            return replace(finding, fix=words, mechanical=True)
        if finding.where.line is not None:
            source = project.source(finding.where.file)
            return replace(finding, fix=in_names_of(source, finding.where.line, finding.fix))
    return finding


def _lines(proposal: Proposal, project: Project) -> Iterator[str]:
    """What stands in place of which lines, or before which."""
    for path, raw in project.after(proposal.edits).items():
        first, second = project.source(str(path)).text, Text(path, raw).text
        where = proposal.finding.where
        elsewhere = where is None or project.path(where.file) != path
        for line, removed, text in _in_whole_statements(changed_lines(first, second), second):
            last = f"-{line + removed - 1}" if removed > 1 else ""
            place = f"line{'s' * (removed > 1)} {line}{last}{f' of {path.name}' if elsewhere else ''}"
            if not text:
                yield f"# delete {place}"
                continue
            code, *others = textwrap.dedent(text).strip("\n").split("\n")
            yield f"{code}    # {'in place of' if removed else 'before'} {place}{_indented(first, line, removed, text)}"
            yield from others


def _in_whole_statements(
    changes: Iterable[tuple[int, int, str]], text: str
) -> Iterator[tuple[int, int, str]]:
    """The changes that lead to a text, each with all lines of the statements that it is in."""
    lines, shift = text.split("\n"), 0
    statements = [
        it for it in ast.walk(ast.parse(text)) if isinstance(it, ast.stmt) and not hasattr(it, "body")
    ]
    for line, removed, added in changes:
        begin, count = line + shift, added.count("\n")
        shift += count - removed
        around = [it for it in statements if it.lineno < begin + count and begin <= (it.end_lineno or 0)]
        first = min([begin, *(it.lineno for it in around)])
        last = max([begin + count - 1, *(it.end_lineno or 0 for it in around)])
        more = last - first + 1 - count
        yield line - (begin - first), removed + more, "\n".join(lines[first - 1 : last]) if more else added


def _indented(first: str, line: int, removed: int, text: str) -> str:
    """How far code is indented that only its indentation changes."""
    lines = first.split("\n")[line - 1 : line - 1 + removed]
    same = [one.strip() for one in lines] == [one.strip() for one in text.strip("\n").split("\n")]
    return f", indented by {len(text) - len(text.lstrip())}" if same else ""
