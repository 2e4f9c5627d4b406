"""The report as JUnit XML: a test case for each check, and for each further finding that fails.

A warning is a failure of its test case where it makes the exit status 1, as it does unless ``--fail-on
fail`` was given; otherwise it stands in the test case's output, so that the file and the exit status agree.
"""

import json
from dataclasses import replace
from xml.etree import ElementTree

from ddpdoctor.model import CheckResult, Finding, Level, Outcome, Report
from ddpdoctor.report.detail import full_text
from ddpdoctor.text import LONGEST_COMMAND, quote_command

_WIDTH = 100


def render(report: Report) -> str:
    """The report as a JUnit file with one test suite."""
    suites = ElementTree.Element("testsuites", name="ddpdoctor", time=f"{report.seconds:.3f}")
    suite = ElementTree.SubElement(suites, "testsuite", name="ddpdoctor", time=f"{report.seconds:.3f}")
    _add_properties(suite, report)
    for check in report.checks:
        _add_case(suite, check, report)
    for element in (suites, suite):
        element.set("tests", str(len(suite.findall("testcase"))))
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            element.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    ElementTree.indent(suites)
    text = ElementTree.tostring(suites, encoding="unicode")
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n"


def _add_properties(suite: ElementTree.Element, report: Report) -> None:
    properties = ElementTree.SubElement(suite, "properties")
    values = {
        "version": report.version,
        "command": quote_command(("ddpdoctor", *report.command), LONGEST_COMMAND),
        **report.run,
    }
    for name, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value)
        ElementTree.SubElement(properties, "property", name=name, value=text)


def _add_case(suite: ElementTree.Element, check: CheckResult, report: Report) -> None:
    failing = _failing_levels(report)
    findings = [finding for finding in report.findings if finding.code == check.code]
    failures = [finding for finding in findings if finding.level in failing]
    case = _case(suite, check)
    if check.outcome is Outcome.SKIP:
        ElementTree.SubElement(case, "skipped", message=check.text)
    elif check.outcome is Outcome.ERROR:
        ElementTree.SubElement(case, "error", message=check.text, type="broken check")
    else:
        for number, failure in enumerate(failures, 1):
            of_finding = case if number == 1 else _case(suite, replace(check, seconds=0.0), f" ({number})")
            told = {"message": failure.headline, "type": failure.level.value}
            ElementTree.SubElement(of_finding, "failure", told).text = _text([failure])
    others = [finding for finding in findings if finding not in failures]
    if others:
        ElementTree.SubElement(case, "system-out").text = _text(others)


def _case(suite: ElementTree.Element, check: CheckResult, number: str = "") -> ElementTree.Element:
    return ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"ddpdoctor.{check.family.value}",
        name=f"{check.code} {check.name}{number}",
        time=f"{check.seconds:.3f}",
    )


def _failing_levels(report: Report) -> tuple[Level, ...]:
    fail_on_fail = report.run.get("fail_on") == Level.FAIL.value
    return (Level.FAIL,) if fail_on_fail else (Level.FAIL, Level.WARN)


def _text(findings: list[Finding]) -> str:
    return "\n\n".join(full_text(finding, _WIDTH) for finding in findings)
