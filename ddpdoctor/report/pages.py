"""The checks' pages, made from their docstrings: for the terminal, and as ``docs/checks.md``.

python -m ddpdoctor.report.pages docs     writes docs/checks.md and docs/report.schema.json
"""

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.model import Source
from ddpdoctor.page import INDENT, Page, read_page
from ddpdoctor.report.detail import hang, in_order

DOCUMENTATION = ""
"""Where the site of docs/ is published, with a slash at its end; empty as long as it is not."""
SCHEMA = Path(__file__).with_name("schema.json")
_PLACES = {
    Source.HOST: "this host",
    Source.GROUP: "a live process group",
    Source.RUN: "a recorded run",
    Source.LOG: "job output",
    Source.CODE: "the source code",
}
_INTRODUCTION = """\
# The checks

Every check in the order of its code. A check covers one problem and every way in which ddpdoctor detects it.
`ddpdoctor explain CODE` prints the same text. This page is generated from the checks' docstrings by
`python -m ddpdoctor.report.pages docs`.

| code | name | family | looks at | what it finds |
|---|---|---|---|---|
"""


def page_of(check: Check) -> Page:
    """The page of a check: its summary, and its sections in the order in which they stand."""
    return read_page(check.page())


def places(check: Check) -> str:
    """``this host, job output``."""
    return ", ".join(_PLACES[source] for source in check.sources())


def text_page(check: Check, width: int) -> str:
    """A check's page for the terminal."""
    page = page_of(check)
    lines = [f"{check.code} {check.name}", f"family {check.family.value}; looks at {places(check)}", ""]
    lines += hang("", page.summary, width)
    for name, blocks in page.sections:
        lines += ["", f"{name}:"]
        for block in blocks:
            copied = (f"{INDENT * 2}{line}" for line in block.text.split("\n"))
            lines += copied if block.is_code else hang(INDENT, block.text, width)
    return "\n".join(lines)


def text_list(checks: Sequence[Check], width: int) -> str:
    """Every check in a table, by family."""
    name_width = max(len(check.name) for check in checks)
    place_width = max(len(_sources(check)) for check in checks)
    lines: list[str] = []
    for family, group in groupby(in_order(checks), key=lambda check: check.family):
        lines.append(family.value)
        for check in group:
            label = f"  {check.code}  {check.name:{name_width}}  {_sources(check):{place_width}}  "
            lines += hang(label, check.title, width)
    return "\n".join(lines)


def list_values(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """Every check as plain values."""
    return [
        {
            "code": check.code,
            "name": check.name,
            "family": check.family.value,
            "sources": [source.value for source in check.sources()],
            "title": check.title,
            "summary": page_of(check).summary,
        }
        for check in checks
    ]


def markdown_sections(check: Check, level: int) -> str:
    """A check's page in Markdown without its heading; its sections are headings of this level."""
    page = page_of(check)
    parts = [_escape(page.summary)]
    for name, blocks in page.sections:
        parts.append(f"{'#' * level} {name}")
        parts += [f"```\n{block.text}\n```" if block.is_code else _escape(block.text) for block in blocks]
    return "\n\n".join(parts)


def check_page(check: Check, level: int = 1) -> str:
    """A check's page in Markdown under a heading of this level."""
    heading = f"{'#' * level} {check.code} {check.name}"
    return (
        f"{heading}\n\nFamily {check.family.value}; looks at {places(check)}.\n\n"
        f"{markdown_sections(check, level + 1)}"
    )


def page_address(code: str) -> str | None:
    """Where the page of a check is published; None as long as the documentation is not."""
    return f"{DOCUMENTATION}checks/{code}/" if DOCUMENTATION else None


def markdown(checks: Sequence[Check]) -> str:
    """The pages of these checks as one Markdown document, in their order."""
    rows = [
        f"| [{check.code}](#{check.code.lower()}-{check.name}) | {check.name} | {check.family.value} "
        f"| {places(check)} | {_escape(page_of(check).summary)} |\n"
        for check in checks
    ]
    pages = "\n\n".join(check_page(check, 2) for check in checks)
    return f"{_INTRODUCTION}{''.join(rows)}\n{pages}\n"


def _escape(text: str) -> str:
    """Prose whose underscores, stars and angle brackets mean themselves; code spans stay as they are."""
    spans = text.split("`")
    for number in range(0, len(spans), 2):
        for sign in "*_<|":
            spans[number] = spans[number].replace(sign, "\\" + sign)
    return "`".join(spans)


def _sources(check: Check) -> str:
    return ", ".join(source.value for source in check.sources())


def main(folder: str) -> None:
    """Write the generated files of the documentation."""
    Path(folder, "checks.md").write_text(markdown(registry.all_checks()), encoding="utf-8")
    Path(folder, "report.schema.json").write_text(SCHEMA.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
