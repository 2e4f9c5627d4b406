from dataclasses import replace
from xml.etree import ElementTree

from ddpdoctor.model import Report
from ddpdoctor.report.junit import render
from tests.report.sample import EVERYTHING


def cases(report: Report) -> dict[str, list[str]]:
    """The code of each test case, and what it holds."""
    suites = ElementTree.fromstring(render(report))
    return {case.attrib["name"].split()[0]: [part.tag for part in case] for case in suites.iter("testcase")}


def test_every_outcome_has_its_element():
    assert cases(EVERYTHING) == {
        "DD901": [],
        "DD902": ["system-out"],
        "DD904": ["failure"],
        "DD905": ["failure"],
        "DD906": ["error"],
        "DD907": ["skipped"],
    }


def test_a_warning_that_is_let_pass_is_output_and_no_failure():
    assert cases(replace(EVERYTHING, run={"fail_on": "fail"}))["DD905"] == ["system-out"]


def test_the_headline_is_the_message():
    failure = ElementTree.fromstring(render(EVERYTHING)).find(".//failure")
    assert failure is not None
    assert failure.attrib["message"] == EVERYTHING.findings[0].headline


def test_a_long_command_line_is_whole():
    command = (
        "check",
        "--ignore",
        "host,group",
        "train.py",
        *(f"--option-{number}=1" for number in range(40)),
    )
    assert "--option-20=1" in render(replace(EVERYTHING, command=command))


def test_properties_are_text_or_json():
    run = {"torch": "2.13.0", "hosts": ["node0", "node1"], "rehearse": True, "folder": None}
    suites = ElementTree.fromstring(render(replace(EVERYTHING, run=run)))
    values = {it.attrib["name"]: it.attrib["value"] for it in suites.iter("property")}
    expected = {"torch": "2.13.0", "hosts": '["node0", "node1"]', "rehearse": "true", "folder": "null"}
    assert {name: values[name] for name in run} == expected
