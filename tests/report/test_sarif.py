"""SARIF, by the standard and by what GitHub documents of the files that code scanning takes."""

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor import registry
from ddpdoctor.model import CheckResult, Excerpt, Mark, Outcome, Report, Where
from ddpdoctor.redact import clean
from ddpdoctor.report import pages
from ddpdoctor.report.sarif import render
from tests.report.sample import EPHEMERAL, EVERYTHING, OVERLAP, UNUSED


def results(report: Report) -> list[dict[str, Any]]:
    (run,) = json.loads(render(report))["runs"]
    return run["results"]


def place_of(result: dict[str, Any]) -> tuple[str, int]:
    place = result["locations"][0]["physicalLocation"]
    return place["artifactLocation"]["uri"], place["region"]["startLine"]


@pytest.fixture
def run(one_check) -> Any:
    log = json.loads(render(EVERYTHING))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    return run


def test_every_result_points_at_its_rule(run):
    rules = run["tool"]["driver"]["rules"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == ["DD904", "DD905", "DD902"]
    assert [result["level"] for result in run["results"]] == ["error", "warning", "note"]


def test_a_result_is_shown_at_its_line_or_at_the_first_of_the_script(run):
    assert [place_of(result) for result in run["results"]] == [
        ("src/gr%C3%B6%C3%9Fe%201%2C2.py", 88),
        ("train.py", 1),  # /opt/lib/data.py is no file of the repository
        ("train.py", 1),  # a port has no line
    ]
    assert "\n\nat /opt/lib/data.py\n\n" in run["results"][1]["message"]["text"]


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("torchrun --nproc-per-node 2 -m package.train --lr 1", "package/train.py"),
        ("python -m torch.distributed.run src/train.py other.py", "src/train.py"),
        ("bash run.sh", "pyproject.toml"),
        ("/elsewhere/train.py", "pyproject.toml"),
        ("../train.py", "pyproject.toml"),
        (None, "pyproject.toml"),
    ],
)
def test_a_result_without_a_line_is_shown_in_the_script_or_the_configuration(script, shown):
    report = replace(EVERYTHING, findings=(EPHEMERAL,), run={**EVERYTHING.run, "script": script})
    (result,) = results(report)
    assert place_of(result) == (shown, 1)


def test_files_are_relative_to_the_repository(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    for variable in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    files = ("a.py", "../b.py", str(tmp_path / "c.py"))
    findings = tuple(replace(EPHEMERAL, where=Where(file, 2)) for file in files)
    places = [place_of(result) for result in results(replace(EVERYTHING, findings=findings))]
    assert places == [("src/a.py", 2), ("b.py", 2), ("c.py", 2)]


def test_a_result_has_the_columns_of_its_expression():
    mark = Mark(3, main=True, columns=(8, 14))
    where, excerpt = Where("train.py", 3), Excerpt("train.py", 2, ("", "    x = f(größe)"), (mark,))
    finding = replace(EPHEMERAL, where=where, excerpts=(excerpt,))
    whole = replace(finding, excerpts=(replace(excerpt, marks=(replace(mark, columns=None),)),))
    (one, other) = results(replace(EVERYTHING, findings=(finding, whole)))
    regions = [result["locations"][0]["physicalLocation"]["region"] for result in (one, other)]
    assert regions == [
        {"startLine": 3, "startColumn": 9, "endLine": 3, "endColumn": 15},
        {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 17},
    ]


def test_a_fingerprint_survives_lines_above_and_differs_within_a_run():
    def prints(line: int) -> list[str]:
        moved = replace(UNUSED, where=replace(UNUSED.where, line=line))
        report = replace(EVERYTHING, findings=(moved, moved, OVERLAP))
        return [result["partialFingerprints"]["ddpdoctor/v1"] for result in results(report)]

    assert prints(88) == prints(90)
    assert len(set(prints(88))) == 3


def test_code_scanning_takes_a_finding_of_every_check():
    checks = [check for check in registry.all_checks() if not check.code.startswith("DD9")]
    findings = tuple(replace(EPHEMERAL, code=check.code) for check in checks)
    lines = tuple(
        CheckResult(check.code, check.name, check.family, Outcome.FAIL, check.title) for check in checks[1:]
    )
    (run,) = json.loads(render(replace(EVERYTHING, checks=lines, findings=findings)))["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len(checks) > 100
    for rule in rules:
        assert 0 < len(rule["id"]) <= 255
        assert 0 < len(rule["name"]) <= 255
        for text in (rule["shortDescription"], rule["fullDescription"]):
            assert 0 < len(text["text"]) <= 1024
        assert rule["help"]["text"]
        assert rule["help"]["markdown"]
        assert len(rule["properties"]["tags"]) <= 10
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]


def test_code_scanning_takes_no_more_than_5000_results():
    assert len(results(replace(EVERYTHING, findings=(EPHEMERAL,) * 5001))) == 5000


@given(text=st.text(max_size=30), line=st.none() | st.integers(-1, 9))
def test_whatever_a_finding_holds_the_log_keeps_to_the_rules_of_code_scanning(text, line):
    finding = replace(EPHEMERAL, headline=text, why=text, fix=text, where=Where(text, line, text))
    report = replace(EVERYTHING, findings=(finding,), run={"script": text})
    for result in results(clean(report, {})):
        assert result["message"]["text"].strip()
        place = result["locations"][0]["physicalLocation"]
        uri, region = place["artifactLocation"]["uri"], place["region"]
        assert uri
        assert not uri.startswith("/")
        assert not urlsplit(uri).scheme
        assert ".." not in uri.split("/")
        assert re.fullmatch(r"[A-Za-z0-9._~/%-]+", uri)
        assert region["startLine"] == region["endLine"] >= 1
        assert 1 <= region["startColumn"] < region["endColumn"]
        assert result["partialFingerprints"]


def test_a_rule_is_explained_by_its_checks_page(run):
    rule = next(rule for rule in run["tool"]["driver"]["rules"] if rule["id"] == "DD904")
    assert "Why it matters:" in rule["help"]["text"]
    assert "```\nif rank == 2: loss = body(x)\n```" in rule["help"]["markdown"]


def test_what_could_not_be_examined_is_a_notification(run):
    (invocation,) = run["invocations"]
    assert [
        (note["level"], note["associatedRule"]["id"]) for note in invocation["toolExecutionNotifications"]
    ] == [
        ("error", "DD906"),
        ("note", "DD907"),
    ]


def test_a_rule_leads_to_its_page_where_the_documentation_is_published(monkeypatch):
    report = replace(EVERYTHING, findings=(replace(EVERYTHING.findings[0], code="DD204"),))

    def addresses() -> set[str | None]:
        (run,) = json.loads(render(report))["runs"]
        return {rule.get("helpUri") for rule in run["tool"]["driver"]["rules"]}

    assert addresses() == {None}
    monkeypatch.setattr(pages, "DOCUMENTATION", "https://docs.example/")
    assert "https://docs.example/checks/DD204/" in addresses()
