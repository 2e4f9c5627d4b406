"""The documentation as a site: built strictly, complete, and without anything from the network."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ddpdoctor import registry
from tests.packaging.documents import ROOT

pytest.importorskip("material", reason="the extra docs is not installed")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    no_network = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    environ = os.environ | no_network | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_each_check_has_its_address(site):
    for check in registry.all_checks():
        text = (site / "checks" / check.code / "index.html").read_text()
        assert f"{check.code} {check.name}" in text
        assert all(
            f">{section}<" in text for section in ("What it finds", "Why it matters", "Example", "Fix")
        )


def test_the_search_finds_a_check_by_its_words(site):
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert "checks/DD103/#fix" in {entry["location"] for entry in found if "set_epoch" in entry["text"]}


class Loaded(HTMLParser):
    """The addresses from which a page loads something by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") != "canonical":
            self.addresses.append(values.get("href") or "")


def test_no_page_loads_anything_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(registry.all_checks())
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert [one for one in loaded.addresses if re.match(r"(https?:)?//", one)] == [], page


def test_every_document_is_in_the_navigation():
    listed = (ROOT / "mkdocs.yml").read_text()
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f": {path.name}\n" not in listed] == []
    home = (ROOT / "docs" / "README.md").read_text()
    assert [
        p.name for p in (ROOT / "docs").glob("*.md") if p.name != "README.md" and f"({p.name})" not in home
    ] == []
