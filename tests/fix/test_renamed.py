"""The same script under other names gets the same patch: at the same lines, by as many lines."""

import pytest

from ddpdoctor.fix.case import Project
from ddpdoctor.fix.edits import changed_lines
from ddpdoctor.fix.propose import proposals
from ddpdoctor.model import Finding, Kind, Level, Where
from ddpdoctor.trace import Trace
from tests.fix.test_patches import written
from tests.sick.test_sick import SCRIPTS
from tests.support.expectations import expectations
from tests.support.renamed import MISLEADING, write_renamed

PATCHED = [script for script in SCRIPTS if script.name in written()]


def places(script, line):
    """The lines that the first patch changes, and by how many."""
    code = script.stem[:5].upper()
    makes_loader = "DataLoader(" in script.read_text().split("\n")[line - 1]
    about = Kind.LOADER.of(f"{script.name}:{line}") if makes_loader else ()
    finding = Finding(code, Level.FAIL, "", "", "", where=Where(script.name, line), about=about)
    project, refusals = Project(script.parent), []
    for proposal in proposals(finding, Trace(()), project, refusals):
        ((_, raw),) = project.after(proposal.edits).items()
        changes = changed_lines(script.read_text(), raw.decode())
        return [(line, removed, text.count("\n")) for line, removed, text in changes]
    return refusals


@pytest.mark.parametrize("script", PATCHED, ids=lambda script: script.stem)
def test_names_play_no_role(script, tmp_path):
    code = script.stem[:5].upper()
    line = next(one.line for one in expectations(script, 3) if one.code == code)
    named = tmp_path / script.name
    # A patch names what has no name.
    named.write_text(script.read_text().replace("for _ in ", "for turn in "))
    assert places(write_renamed(named, tmp_path / "renamed", MISLEADING), line) == places(named, line)
