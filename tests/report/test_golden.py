"""Each format against a file in golden/; DDPDOCTOR_GOLDEN=write writes them anew."""

import os
from pathlib import Path

import pytest

from ddpdoctor.report import Format, render
from ddpdoctor.report.terminal import render as render_terminal
from tests.report.sample import EVERYTHING, HEALTHY, NOTHING

GOLDEN = Path(__file__).parent / "golden"
ENDINGS = {
    Format.TERMINAL: "txt",
    Format.JSON: "json",
    Format.JUNIT: "xml",
    Format.SARIF: "sarif",
    Format.GITHUB: "github.txt",
}


def agree(text: str, name: str) -> None:
    file = GOLDEN / name
    if os.environ.get("DDPDOCTOR_GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{file} differs; DDPDOCTOR_GOLDEN=write writes it anew"


@pytest.mark.usefixtures("one_check")
@pytest.mark.parametrize("format", ENDINGS)
@pytest.mark.parametrize(
    ("name", "report"), [("everything", EVERYTHING), ("healthy", HEALTHY), ("nothing", NOTHING)]
)
def test_format(format, name, report):
    agree(render(report, format), f"{name}.{ENDINGS[format]}")


def test_terminal_verbose():
    agree(render(EVERYTHING, Format.TERMINAL, verbose=True), "verbose.txt")


@pytest.mark.parametrize("width", [50, 110])
def test_terminal_at_other_widths(width):
    agree(render_terminal(EVERYTHING, width, verbose=True), f"verbose.{width}.txt")
