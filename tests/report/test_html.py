"""The report as a page: what it says, what foreign text may do to it, how large it may be."""

import platform
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from ddpdoctor.figures import (
    MOST_ROWS,
    Lines,
    Row,
    Section,
    Series,
    Span,
    StackFrame,
    Stacks,
    Strips,
    Table,
    Tone,
    Waiter,
    WaitsFor,
    chosen,
)
from ddpdoctor.model import Evidence, Excerpt, Finding, Level, Mark, Where
from ddpdoctor.redact import clean
from ddpdoctor.report.html import notebook, render
from ddpdoctor.report.html.drawing import round_values
from tests.report.sample import EVERYTHING, HEALTHY, NOTHING, UNUSED

LARGEST = 2_000_000
EMPTY = {"meta", "br"}
HOSTILE = (
    "</script><svg onload=alert(1)>",
    "</style><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[31mred\x1b]8;;http://x\x07",
    "\u202efdp.exe\u2066",
    "javascript:alert(1)",
)


class Parser(HTMLParser):
    """Every element is closed, in order; which elements, attributes and texts there are."""

    def __init__(self, page):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in EMPTY:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, text):
        if "style" not in self.open:
            self.text += text

    def all(self, name):
        return [attributes for element, attributes in self.elements if element == name]


def sections_with(text, ranks=4, spans=4):
    """A section with one figure of each kind, and a text in every place that can hold one."""
    rows = tuple(
        Row(text, tuple(Span(n, n + 0.9, Tone.WORK, text, 0.5) for n in range(spans)), text, n == 1)
        for n in range(ranks)
    )
    strips = Strips(text, rows, end=float(spans), unit="samples", legend=((Tone.WORK, text),), note=text)
    figures = (
        strips,
        replace(strips, unit=""),
        Lines(text, text, text, (Series(text, ((0, 1), (1, 2))), Series(text, ((0, 2),))), note=text),
        WaitsFor(text, (Waiter(text, text, (1,)), Waiter(text, text, culprit=True)), text),
        Stacks(text, (StackFrame(1, text, text, True, True), StackFrame(1, text)), text),
        Table(f"table of {text}", (text, text), ((text, text),), text),
    )
    return (Section(text, text, figures),)


def hostile(text):
    finding = replace(UNUSED, headline=text, why=text, fix=f"   {text}", where=Where(text, 1, text))
    finding = replace(finding, evidence=(Evidence(text, (0,)), Evidence(f"{text}\n{text}")))
    run = {**EVERYTHING.run, "script": text, "folder": text, "backend": text}
    findings = (finding, replace(finding, headline=f"2 {text}"), replace(finding, code="X", level=Level.INFO))
    report = replace(EVERYTHING, command=(text,), findings=findings, run=run, notes=(text,))
    return clean(replace(report, sections=sections_with(text)), {})


@pytest.mark.parametrize(
    "report", [EVERYTHING, HEALTHY, NOTHING, replace(EVERYTHING, sections=sections_with("a"))]
)
def test_the_page_is_well_formed_and_loads_nothing(report):
    page = Parser(render(report))
    assert {"script", "link", "img", "iframe", "object", "form", "base"}.isdisjoint(
        {e for e, _ in page.elements}
    )
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    policy = next(meta["content"] for meta in page.all("meta") if meta.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "url(" not in render(report)
    assert "@import" not in render(report)


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_stays_text(text):
    plain, page = Parser(render(hostile("plain"))), Parser(render(hostile(text)))
    assert [element for element, _ in page.elements] == [element for element, _ in plain.elements]
    attributes = [sorted(given) for _, given in page.elements]
    assert attributes == [sorted(given) for _, given in plain.elements]
    assert not any(c in render(hostile(text)) for c in "\x1b\x07\u202e\u2066")
    assert all(given["href"].startswith("#") for given in page.all("a"))


def test_the_cause_comes_first_and_what_passed_is_folded():
    page = Parser(render(EVERYTHING))
    text = page.text
    assert text.index(EVERYTHING.findings[0].headline) < text.index(EVERYTHING.findings[1].headline)
    assert "1 problem, 1 warning, 1 check broke: " in text
    folded = re.findall(r"<details class=.silent.><summary><b>(\w+)</b>", render(EVERYTHING))
    assert folded == ["launch", "gpu"]


def test_the_page_says_what_ran_where_and_when_and_leads_to_each_finding():
    page = Parser(render(replace(EVERYTHING, since=86400.0 * 365, sections=sections_with("a"))))
    assert "1970" in page.text or "1971" in page.text
    assert platform.node() in page.text
    assert page.text.index("ddpdoctor check") < page.text.index("Findings")
    there = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    links = [link["href"] for link in page.all("a") if link["href"].startswith("#")]
    assert {"#finding-dd904", "#finding-dd905", "#checks"} <= set(links) <= {f"#{name}" for name in there}
    assert len(set(there)) == len(there)


def test_what_pointing_tells_is_text_too():
    page = render(replace(EVERYTHING, sections=sections_with("told", spans=20)))
    values = re.findall(r'<details class="values">.*?</details>', page, re.DOTALL)
    assert len(values) == 3
    assert "and 4 shorter" in values[0]


def test_one_legend_serves_a_section_unless_a_colour_means_two_things():
    row = (Row("a", (Span(0, 1, Tone.WORK),)),)
    one, same = (Strips(title, row, legend=((Tone.WORK, "drawn"),)) for title in "ab")
    other = replace(same, legend=((Tone.WORK, "computes"),))
    for figures, count in (((one, same), 1), ((one, other), 2)):
        page = render(replace(EVERYTHING, sections=(Section("s", figures=figures),)))
        assert page.count('<ul class="legend">') == count


def test_a_figure_with_nothing_to_compare_is_left_out_and_two_points_have_no_line():
    alone = Lines("alone", "ranks", "y", (Series("a", ((1, 1.0),)),))
    two = Lines("two", "ranks", "y", (Series("a", ((1, 1.0), (2, 0.5))),))
    page = render(replace(EVERYTHING, sections=(Section("s", figures=(alone, two)),)))
    assert page.count("<figure>") == 1
    assert page.count('class="dot"') == 2
    assert "L" not in "".join(path["d"] for path in Parser(page).all("path"))


def test_a_healthy_page_has_no_findings_and_no_empty_section():
    page = Parser(render(HEALTHY))
    assert "Findings" not in page.text
    assert page.all("figure") == []
    assert 'class="verdict pass"' in render(HEALTHY)


def test_evidence_is_folded_by_rank():
    page = render(EVERYTHING)
    assert '<td class="wrap">0-1, 3</td><td class="wrap">gradients 148 of 148</td>' in page


def test_what_is_to_copy_of_a_fix_is_together_and_what_is_to_read_is_not():
    fix = "if rank == 0:\n    torch.save(state, path)\ndist.barrier()\nx = f(y)    # each pass\non every rank (both)"
    page = render(replace(EVERYTHING, findings=(replace(UNUSED, fix=fix),)))
    assert (
        "<pre>if rank == 0:\n    torch.save(state, path)\ndist.barrier()\nx = f(y)    # each pass</pre>"
        "<div>on every rank (both)</div>" in page
    )


def test_the_expression_of_a_finding_is_marked_in_its_line():
    excerpt = Excerpt("a.py", 7, ("y = f(<x>)",), (Mark(7, main=True, columns=(4, 10)),))
    page = render(replace(EVERYTHING, findings=(replace(UNUSED, excerpts=(excerpt,)),)))
    assert 'y = <span class="expression">f(&lt;x&gt;)</span>' in page


def test_a_page_of_many_ranks_stays_small():
    ranks = 512
    evidence = tuple(Evidence(f"state {n} " + "&" * 20000, (n,)) for n in range(ranks))
    findings = tuple(
        Finding(f"DD{n % 200:03}", Level.FAIL, f"finding {n}", "why", "fix", (n,), evidence=evidence)
        for n in range(1000)
    )
    sections = sections_with("rank & " * 20, ranks=MOST_ROWS, spans=400)
    report = replace(EVERYTHING, findings=findings, sections=sections * 3, notes=("note " * 1000,) * 1000)
    size = len(render(report).encode())
    assert size < LARGEST


def test_ranks_that_matter_are_chosen_of_many():
    ranks = range(512)
    shown = chosen(ranks, [300, 17])
    assert {0, 17, 300, 511} <= {*shown}
    assert len(shown) <= MOST_ROWS
    assert chosen(range(5), [3]) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0.0037), (3, 1e9), (5, 5), (-2, 2)])
def test_axes_have_round_numbers(low, high):
    values = round_values(low, high)
    assert all(low <= value <= high for value in values)
    assert 1 <= len(values) <= 8


def test_a_chart_leaves_out_what_is_no_number():
    lines = Lines("t", "x", "y", (Series("a", ((0, 1.0), (1, float("nan")), (2, float("inf")), (3, 2.0))),))
    page = Parser(render(replace(EVERYTHING, sections=(Section("s", figures=(lines,)),))))
    assert page.text.count("a: ") == 2
    assert not any("nan" in path["d"] or "inf" in path["d"] for path in page.all("path"))


def test_the_page_of_a_notebook_is_framed():
    framed = Parser(notebook(EVERYTHING))
    (frame,) = framed.all("iframe")
    assert frame["srcdoc"] == render(EVERYTHING)
    assert frame["sandbox"] == "allow-popups"


def test_no_other_format_shows_the_pictures():
    from ddpdoctor.report import Format
    from ddpdoctor.report import render as render_as

    pictured = replace(EVERYTHING, sections=sections_with("only on a page"))
    for format in Format:
        assert ("only on a page" in render_as(pictured, format)) is (format is Format.HTML)
