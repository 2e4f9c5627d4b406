"""The Python interface."""

import re
import sys
from pathlib import Path

import pytest

import ddpdoctor
from ddpdoctor.check import Check
from ddpdoctor.demos import demos

OUTPUTS = Path(__file__).parent / "logs" / "outputs"
DEMO = next(demo for demo in demos() if demo.code == "DD201")


def test_the_names_stand_before_the_submodules_of_the_same_name() -> None:
    import ddpdoctor.hang.jobs

    assert sys.modules["ddpdoctor.check"].Check is Check
    for name in ("check", "hang", "explain"):
        assert getattr(ddpdoctor, name).__module__ == "ddpdoctor.api"
        assert getattr(ddpdoctor, name).__doc__


def test_explain_returns_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    report = ddpdoctor.explain(OUTPUTS / "chained.log")
    assert isinstance(report, ddpdoctor.Report)
    assert (report.exit_status, [finding.code for finding in report.problems]) == (1, ["DD304"])
    assert report.command == ("explain", str(OUTPUTS / "chained.log"))
    assert "FAIL[DD304]: rank 1 failed with FileNotFoundError" in str(report)
    assert report.render("json").startswith("{")
    assert "missing.yaml" in report._repr_html_()
    frame, _, rest = report._repr_html_().partition(' srcdoc="')
    assert frame.startswith("<iframe")
    assert "<" not in rest.partition('"')[0]  # the page is quoted whole
    assert capsys.readouterr() == ("", "")


def test_hang_of_nothing_raises(tmp_path: Path) -> None:
    with pytest.raises(ddpdoctor.UsageError, match="is neither a folder nor a process id"):
        ddpdoctor.hang(tmp_path / "missing")


def test_what_cannot_be_examined_raises(tmp_path: Path) -> None:
    with pytest.raises(ddpdoctor.UsageError, match="does not exist"):
        ddpdoctor.check(tmp_path / "missing.py")
    with pytest.raises(ddpdoctor.UsageError, match="requires a file"):
        ddpdoctor.explain()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 3}, "check() has no argument 'epochs'"),
        ({"nprocs": 2}, "check() has no argument 'nprocs'; did you mean nproc?"),
        ({"nproc": "2"}, "check(): nproc='2' is not a whole number"),
        ({"fail_on": "x"}, "check(): fail_on='x' is neither 'fail' nor 'warn'"),
        ({"budget": "fast"}, "check(): budget='fast' is not a number"),
        ({"ignore": 3}, "check(): ignore=3 is not a list of codes or names"),
        ({"script": 5}, "check(): 5 is not a script or a launch line"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        ddpdoctor.check(**{"script": tmp_path, **arguments})  # type: ignore[arg-type]


@pytest.mark.slow
def test_check_runs_a_script_and_returns_the_report(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "training.py"
    script.write_text(DEMO.sick)
    report = ddpdoctor.check(script, nproc=2, select=["run"])
    (finding,) = report.problems
    assert (finding.code, finding.ranks) == ("DD201", (0, 1))
    assert finding.where is not None
    assert any("model.module(inputs)" in line for excerpt in finding.excerpts for line in excerpt.lines)
    assert capfd.readouterr() == ("", "")
