"""What each patch changes in scripts with its problem, against diffs in golden.txt; DDPDOCTOR_GOLDEN=write writes it.

No script runs: the finding is made of the script's own ``# expect:`` comment, and the run recorded nothing.
"""

import os
import re
import sys
from pathlib import Path

import pytest

import ddpdoctor.fix.patches
from ddpdoctor import registry
from ddpdoctor.fix.case import Project
from ddpdoctor.fix.edits import unified_diff
from ddpdoctor.fix.patches import patch_names, patches
from ddpdoctor.fix.propose import proposals
from ddpdoctor.model import Finding, Kind, Level, Where
from ddpdoctor.trace import Trace
from tests.sick.test_sick import SCRIPTS
from tests.support.expectations import expectations

GOLDEN = Path(__file__).with_name("golden.txt")
EXPECTED = re.compile(r"  # expect: .*")


def diff_of(script: Path) -> str:
    """What the first patch for the script's problem changes; empty where there is none."""
    code = script.stem[:5].upper()
    line = next((one.line for one in expectations(script, 3) if one.code == code), None)
    if line is None:
        return ""
    makes_loader = "DataLoader(" in script.read_text().split("\n")[line - 1]
    about = Kind.LOADER.of(f"{script.name}:{line}") if makes_loader else ()
    finding = Finding(code, Level.FAIL, "", "", "", where=Where(script.name, line), about=about)
    project = Project(script.parent)
    for proposal in proposals(finding, Trace(()), project, []):
        ((path, raw),) = project.after(proposal.edits).items()
        lines = unified_diff(path.name, script.read_text(), raw.decode()).splitlines(keepends=True)
        # Where the finding is, and what is around the change, is another test's matter.
        return "".join(EXPECTED.sub("", line) for line in lines if line[0] in "+-")
    return ""


def written() -> dict[str, str]:
    """The diffs of the golden file, by the names of their scripts."""
    diffs = re.split(r"^(?=--- a/)", GOLDEN.read_text(), flags=re.MULTILINE)[1:]
    return {diff.split("\n", 1)[0].removeprefix("--- a/"): diff for diff in diffs}


def test_patches_change_what_they_have_to():
    if os.environ.get("DDPDOCTOR_GOLDEN") == "write":
        GOLDEN.write_text("".join(map(diff_of, sorted(SCRIPTS))))
    scripts = {script.name: script for script in SCRIPTS}
    golden = {name: diff for name, diff in written().items() if name in scripts}
    assert len(golden) > 100
    assert {name: diff_of(scripts[name]) for name in golden} == golden


@pytest.mark.parametrize("name", patches())
def test_a_patch_cures_findings_of_checks_that_are_there(name):
    assert patches()[name].apply.__doc__
    assert patches()[name].cures
    assert all(map(registry.by_code, patches()[name].cures))


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("DD101", ("distributed_sampler", "rank_seed")),
        ("DD204", ("gather_with_gradient", "find_unused")),
        ("DD303", ("call_module", "out_of_rank_guard")),
        ("DD601", ()),
    ],
)
def test_the_preferred_patch_is_tried_first(code, names):
    assert patch_names(code) == names


NEW = """\
from ddpdoctor.fix.patches import patch


@patch("DD601")
def new_patch(case):
    return "changed"
"""


def test_a_new_patch_is_one_function(tmp_path, monkeypatch):
    (tmp_path / "new_patches.py").write_text(NEW)
    monkeypatch.setattr(ddpdoctor.fix.patches, "__path__", [*ddpdoctor.fix.patches.__path__, str(tmp_path)])
    patches.cache_clear()
    try:
        assert patch_names("DD601") == ("new_patch",)
        assert patches()["new_patch"].apply(None) == "changed"
    finally:
        patches.cache_clear()
        sys.modules.pop("ddpdoctor.fix.patches.new_patches")
