import json
from typing import Any

import pytest

from ddpdoctor.report.sarif import render
from tests.report.sample import EVERYTHING

pytestmark = pytest.mark.usefixtures("one_check")


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


def test_a_location_stands_only_where_a_finding_has_one(run):
    uris = [
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in run["results"]
        if "locations" in result
    ]
    assert uris == ["src/gr%C3%B6%C3%9Fe%201%2C2.py", "file:///opt/lib/data.py"]


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
