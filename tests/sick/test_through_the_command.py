"""A script that says something only through the whole command; those of the documents run there too."""

from pathlib import Path

from tests.support.command import ddpdoctor
from tests.support.expectations import expectations


def test_a_disease_that_is_seen_in_a_process_of_its_own_only(tmp_path: Path) -> None:
    """It changes its environment before it imports torch."""
    script = Path(__file__).with_name("dd005_variables_set_in_the_script.py")
    options = ("--nproc", "2", "--ignore", "host,group", "--format", "json", "-q")
    done = ddpdoctor("check", *options, str(script), cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    expected = {(one.code, one.line, one.ranks) for one in expectations(script, 2)}
    findings = [finding for finding in done.report["findings"] if finding["level"] != "info"]
    assert {
        (finding["code"], (finding["where"] or {}).get("line"), tuple(finding["ranks"]))
        for finding in findings
    } == expected, done.out + done.err
    assert done.status == 1
