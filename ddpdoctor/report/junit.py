"""The report as JUnit XML: a test case for each check.

A warning is a failure of its test case where it makes the exit status 1, as it does unless ``--fail-on
fail`` was given; otherwise it stands in the test case's output, so that the file and the exit status agree.
"""

from __future__ import annotations

from xml.etree import ElementTree

from ddpdoctor.model import CheckResult, Finding, Level, Outcome, Report
from ddpdoctor.report.detail import finding_lines
from ddpdoctor.text import quote_command

_WIDTH = 100


def render(report: Report) -> str:
    """The report as a JUnit file with one test suite."""
    suites = ElementTree.Element("testsuites", name="ddpdoctor", time=f"{report.seconds:.3f}")
    suite = ElementTree.SubElement(suites, "testsuite", name="ddpdoctor", time=f"{report.seconds:.3f}")
    _add_properties(suite, report)
    for check in report.checks:
        _add_case(suite, check, report)
    for element in (suites, suite):
        element.set("tests", str(len(report.checks)))
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            element.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    ElementTree.indent(suites)
    return (
        "<?xml version='1.0' encoding='utf-8'?>\n" + ElementTree.tostring(suites, encoding="unicode") + "\n"
    )


def _add_properties(suite: ElementTree.Element, report: Report) -> None:
    properties = ElementTree.SubElement(suite, "properties")
    values = {
        "version": report.version,
        "command": quote_command(("ddpdoctor", *report.command)),
        **report.run,
    }
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))


def _add_case(suite: ElementTree.Element, check: CheckResult, report: Report) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"ddpdoctor.{check.family.value}",
        name=f"{check.code} {check.name}",
        time=f"{check.seconds:.3f}",
    )
    if check.outcome is Outcome.SKIP:
        ElementTree.SubElement(case, "skipped", message=check.text)
    elif check.outcome is Outcome.ERROR:
        ElementTree.SubElement(case, "error", message=check.text, type="broken check")
    failing = _failing_levels(report)
    mine = [finding for finding in report.findings if finding.code == check.code]
    failures = [finding for finding in mine if finding.level in failing]
    if failures and check.outcome is not Outcome.ERROR:
        worst = failures[0]
        ElementTree.SubElement(case, "failure", message=worst.headline, type=worst.level.value).text = _text(
            failures
        )
    others = [finding for finding in mine if finding not in failures]
    if others:
        ElementTree.SubElement(case, "system-out").text = _text(others)


def _failing_levels(report: Report) -> tuple[Level, ...]:
    fail_on_fail = report.run.get("fail_on") == Level.FAIL.value
    return (Level.FAIL,) if fail_on_fail else (Level.FAIL, Level.WARN)


def _text(findings: list[Finding]) -> str:
    return "\n\n".join(
        "\n".join(line.text for line in finding_lines(finding, _WIDTH)) for finding in findings
    )
