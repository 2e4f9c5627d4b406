"""Scripts that say something only through the whole command; those of the documents run there too."""

from pathlib import Path

from tests.support.command import Done, ddpdoctor
from tests.support.expectations import expectations

SICK, HEALTHY = Path(__file__).parent, Path(__file__).parents[1] / "healthy"


def check(folder: Path, *words: str) -> Done:
    options = ("--nproc", "2", "--ignore", "host,group", "--format", "json", "-q")
    return ddpdoctor("check", *options, *words, cwd=folder, env={"TMPDIR": str(folder)})


def test_a_disease_that_is_seen_in_a_process_of_its_own_only(tmp_path: Path) -> None:
    """It changes its environment before it imports torch."""
    script = SICK / "dd005_variables_set_in_the_script.py"
    done = check(tmp_path, str(script))
    expected = {(one.code, one.line, one.ranks) for one in expectations(script, 2)}
    found = {(one["code"], (one["where"] or {}).get("line"), tuple(one["ranks"])) for one in findings(done)}
    assert found == expected, done.out + done.err
    assert done.status == 1


def test_a_right_script_ends_with_0(tmp_path: Path) -> None:
    done = check(tmp_path, str(HEALTHY / "aborts_after_its_end.py"))
    assert (done.status, findings(done)) == (0, []), done.out + done.err


def findings(done: Done) -> list[dict]:
    return [one for one in done.report["findings"] if one["level"] != "info"]
