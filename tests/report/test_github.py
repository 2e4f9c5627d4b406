from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor.model import Report, Where
from ddpdoctor.report.github import render
from tests.report.sample import UNUSED


def annotation(**changes: object) -> str:
    report = Report("0.1.0", (), 1, 0.1, findings=(replace(UNUSED, **changes),))  # type: ignore[arg-type]
    return render(report)


@given(st.text(st.sampled_from("a%:,\r\n"), min_size=1))
def test_no_text_ends_an_annotation_or_begins_another(text):
    written = annotation(headline=text, why=text, fix=text, where=Where(text, 1))
    line, verdict, end = written.split("\n")
    assert line.startswith("::error file=")
    assert "\r" not in line
    properties, _, message = line.removeprefix("::error ").partition("::")
    assert dict(part.split("=", 1) for part in properties.split(",")).keys() == {"file", "line", "title"}
    decoded = message.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    assert decoded.startswith(f"{text}\n")
    assert verdict.startswith("1 problem: ")
    assert end == ""


def test_a_finding_without_a_place_names_no_file():
    assert annotation(where=None).startswith("::error title=DD904::")
