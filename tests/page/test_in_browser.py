"""The page in a real headless Chromium: it renders, is quiet, overlaps nowhere, and everybody can use it.

``python -m tests.page`` runs it, with Chromium and axe-core.
"""

import itertools
import os
from pathlib import Path

import pytest

from ddpdoctor.cli.page_sections import with_sections
from ddpdoctor.redact import clean
from ddpdoctor.report.comparison import compared
from ddpdoctor.report.html import render
from tests.page.browser import Browser
from tests.report.sample import EVERYTHING, HEALTHY
from tests.report.test_html import HOSTILE, hostile, sections_with
from tests.support.loading import drawing
from tests.support.recordings import recorded, replace
from tests.support.training import diverging, each_step
from tests.trace.test_figures import PAGE, stuck, with_straggler

CHROMIUM, AXE, LOOK = (os.environ.get(name, "") for name in ("CHROMIUM", "AXE", "LOOK"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="python -m tests.page runs it")]


def pictured(trace):
    return clean(with_sections(EVERYTHING, trace, PAGE, print), {})


def repeating(size=2):
    """Three passes of a sampler that shuffles, in one order."""

    def change(rank, one):
        sampler = replace(one.loaders[0].sampler, shuffle=True)
        order = [(rank + size * index * 7) % (30 * size) for index in range(30)]
        return drawing(one, *[order] * 3, sampler=sampler)

    return recorded(size, change)


PAGES = {
    "healthy": HEALTHY,
    "everything": replace(EVERYTHING, sections=sections_with("some text")),
    "hang": pictured(stuck()),
    "straggler": pictured(with_straggler()),
    "diverged": pictured(each_step(diverging, nproc=4)),
    "many ranks": pictured(recorded(512)),
    "compared": compared(pictured(with_straggler()), pictured(recorded(64)), "ddpdoctor-a"),
    "repeated order": pictured(repeating()),
    **{f"hostile {number}": hostile(text) for number, text in enumerate(HOSTILE)},
}
OVERFLOWING = """
[...document.querySelectorAll('main *, header *')].filter(e =>
  !e.closest('svg, .scroll, .source, .axis, .x, .y') && getComputedStyle(e).display !== 'contents'
  && (e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
      || (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflow === 'visible' && e.clientWidth))
).map(e => e.outerHTML.slice(0, 120))
"""
OVERLAPPING = """
(() => {
  const texts = [...document.querySelectorAll('.name, .value, .axis span, .x span, .y span, .legend li')]
    .filter(e => e.innerText.trim()).map(e => [e, e.getBoundingClientRect()]);
  const beside = (a, b) => a.left < b.right - 1 && b.left < a.right - 1;
  const cross = (a, b) => beside(a, b) && a.top < b.bottom - 2 && b.top < a.bottom - 2;
  return texts.flatMap(([e, a], n) => texts.slice(n + 1).filter(([, b]) => cross(a, b))
    .map(([f]) => e.outerHTML.slice(0, 90) + ' / ' + f.outerHTML.slice(0, 90))).slice(0, 5);
})()
"""
VIOLATIONS = "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html)]))"


@pytest.fixture(scope="module")
def browser():
    with Browser(CHROMIUM) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, report in PAGES.items():
        (folder / f"{name}.html").write_text(render(report), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_the_page_renders_and_nothing_overlaps(browser, pages: Path, name):
    browser.problems.clear()
    for width, dark in itertools.product((1280, 390), (False, True)):
        browser.open(pages / f"{name}.html", width, dark=dark)
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value(OVERFLOWING) == [], width
        assert browser.value(OVERLAPPING) == [], width
        assert browser.value("document.title").startswith("ddpdoctor")
        if LOOK:
            browser.screenshot(Path(LOOK) / f"{name}.{width}.{'dark' if dark else 'light'}.png")
    assert browser.problems == []


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("hostile")])
def test_a_hostile_script_adds_no_element(browser, pages: Path, name):
    browser.open(pages / f"{name}.html")
    assert browser.value("document.querySelectorAll('script, img, iframe, object').length") == 0
    assert browser.value("document.querySelectorAll('h2').length") >= 2


def test_the_keyboard_opens_what_is_folded(browser, pages: Path):
    browser.open(pages / "everything.html")
    folded = "document.activeElement.tagName === 'SUMMARY' && !document.activeElement.parentElement.open"
    for _ in range(50):
        browser.key("Tab")
        if browser.value(folded):
            break
    assert browser.value(folded)
    browser.key("Enter", "\r")
    assert browser.value("document.activeElement.parentElement.open")
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_colours_follow_the_readers_choice(browser, pages: Path):
    shades = []
    for dark in (False, True):
        browser.open(pages / "healthy.html", dark=dark)
        shades.append(browser.value("getComputedStyle(document.body).backgroundColor"))
    assert shades == ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]


def test_on_paper_what_passed_is_left_out_and_nothing_else_is_folded(browser, pages: Path):
    browser.open(pages / "everything.html", 800, media="print")
    visible = "e => e.checkVisibility({{contentVisibilityAuto: true}})"
    shown = f"[...document.querySelectorAll('{{}}')].filter({visible}).length"
    assert browser.value(shown.format("details.quiet h3"))
    for hidden in ("nav", ".silent", ".values"):
        assert browser.value(shown.format(hidden)) == 0


@pytest.mark.parametrize("name", [name for name in PAGES if not name.startswith("hostile")])
def test_four_sheets_of_paper_are_enough(browser, pages: Path, name):
    browser.open(pages / f"{name}.html")
    assert browser.sheets() <= 4


@pytest.mark.skipif(not AXE, reason="axe-core could not be fetched")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", [name for name in PAGES if not name.startswith("hostile")])
def test_the_page_is_accessible(browser, pages: Path, name, dark):
    for width in (1280, 390):
        browser.open(pages / f"{name}.html", width, dark=dark)
        browser.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
        browser.value(Path(AXE).read_text(encoding="utf-8") + "; 0")
        problems = browser.value(
            "axe.run().then(r => r.violations.map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html)]))"
        )
        assert problems == []
