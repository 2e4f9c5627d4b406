"""Scripts of frameworks through the whole command; those whose framework is not installed are skipped."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.command import Done, apart, ddpdoctor
from tests.support.expectations import expectations

pytestmark = pytest.mark.slow

SCRIPTS = sorted(
    script for script in Path(__file__).parent.glob("[a-z]*_*.py") if not script.stem.startswith("test_")
)
MODULES = {"fabric": "lightning", "transformers": "transformers"}
"""Where a framework's module has another name than the first word of its scripts."""
STARTS_RANKS = ("ray",)
"""Frameworks that start their workers themselves, however they are launched."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_script_of_a_framework_says(script: Path, tmp_path: Path) -> None:
    framework = script.stem.partition("_")[0]
    if find_spec(MODULES.get(framework, framework)) is None:
        pytest.skip(f"{framework} is not installed: python -m tests.frameworks")
    done = check(script, tmp_path, by_itself=framework in STARTS_RANKS)
    wanted = {(expected.code, expected.line, expected.ranks) for expected in expectations(script, 2)}
    findings = [
        finding
        for finding in done.report["findings"]
        if finding["level"] != "info" or place_of(finding) in wanted
    ]
    assert {place_of(finding) for finding in findings} == wanted, done.out + done.err
    for words in re.findall(r"# .*\bfix: (\S+)", script.read_text()):
        assert any(words in finding["fix"] for finding in findings), done.out
    assert done.status == int(any(finding["level"] != "info" for finding in findings))


def check(script: Path, folder: Path, *, by_itself: bool) -> Done:
    launch = ("--", sys.executable, str(script)) if by_itself else ("--nproc", "2", *apart(), str(script))
    options = ("--ignore", "host,group", "--format", "json", "--quiet")
    # Ray makes sockets below it, whose paths must be short.
    with TemporaryDirectory(dir="/tmp") as temporary:
        return ddpdoctor("check", *options, *launch, cwd=folder, env={"TMPDIR": temporary})


def place_of(finding: dict) -> tuple[str, int | None, tuple[int, ...]]:
    return finding["code"], (finding["where"] or {}).get("line"), tuple(finding["ranks"])
