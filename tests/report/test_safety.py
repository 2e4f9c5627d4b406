"""What foreign text may do to a report, in every format."""

import html
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpdoctor.model import Evidence, Report, Where
from ddpdoctor.redact import clean
from ddpdoctor.report import Format, render
from tests.report.sample import EVERYTHING, LINES, UNUSED

SECRETS = (
    "correct-horse-battery",
    'it\'s "quoted" & <tagged>',
    "a\nb\x1b[2Jlong enough",
    "hf_abcdefghijklmnopqrst",
)
each_format = pytest.mark.parametrize("format", Format)


def report_with(text: str) -> Report:
    """The sample report with a text in every place that can hold foreign text."""
    finding = replace(
        UNUSED,
        headline=text,
        why=text,
        fix=text,
        where=Where(text, 1, text),
        evidence=(Evidence(text, (0,)),),
    )
    line = replace(LINES[0], text=text, reason=text, evidence=(Evidence(text),))
    run = {**EVERYTHING.run, "folder": text, "script": text}
    return replace(EVERYTHING, command=(text,), checks=(line,), findings=(finding,), run=run, notes=(text,))


@each_format
@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_of_the_environment_is_in_any_format(format, secret):
    environ = {"SERVICE_TOKEN": secret}
    written = render(clean(report_with(f"before {secret} after"), environ), format, verbose=True)
    assert "***" in written
    for shown in (written, html.unescape(written), written.replace('\\"', '"')):
        assert secret not in shown
        assert json.dumps(secret)[1:-1] not in shown
        assert repr(secret)[1:-1] not in shown


@each_format
@given(text=st.text(max_size=30))
def test_no_control_character_but_newline_is_in_any_format(format, text):
    written = render(clean(report_with(text), {}), format, verbose=True)
    assert all(character.isprintable() or character == "\n" for character in written)
