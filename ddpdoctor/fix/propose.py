"""The patches that may cure a finding, as edits of the user's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ddpdoctor import registry
from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case, Project
from ddpdoctor.fix.edits import Edit
from ddpdoctor.fix.patches import patch_names, patches
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
