"""What holds for every check: its page, its place, its imports."""

import ast
import re
import sys
from pathlib import Path

import pytest

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.model import Source
from ddpdoctor.page import SECTIONS
from ddpdoctor.report.pages import SCHEMA, markdown, page_of

ROOT = Path(__file__).parent.parent
FILES = sorted(path for path in (ROOT / "checks").rglob("*.py") if path.name != "__init__.py")
MAKE_DOCS = "run: python -m ddpdoctor.report.pages docs"

each_check = pytest.mark.parametrize("check", registry.all_checks(), ids=lambda check: check.code)
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


@each_check
def test_the_page_has_its_sections_in_order_and_none_is_empty(check: Check):
    page = page_of(check)
    assert page.summary.endswith(".")
    assert tuple(name for name, _ in page.sections) == SECTIONS
    assert all(blocks for _, blocks in page.sections)


@each_check
def test_a_check_says_what_it_is(check: Check):
    assert re.fullmatch(r"DD\d{3}", check.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.name)
    assert check.sources(), "it looks nowhere"
    assert not check.title.endswith(".")


@pytest.mark.parametrize("source", Source)
@pytest.mark.parametrize("selected", [(), ("host", "DD1"), ("GROUP", "run")])
def test_all_checks_of_a_source_are_found_though_not_all_files_are_imported(
    source: Source, selected: tuple[str, ...]
):
    every = [check for check in registry.all_checks() if source in check.sources()]
    wanted = [
        it for it in every if not selected or any(registry.matches(it, source, word) for word in selected)
    ]
    assert list(registry.select(source, selected)) == wanted


@each_check
def test_a_bundled_check_stands_in_the_folder_of_its_family(check: Check):
    *_, family, module = type(check).__module__.split(".")
    assert family == check.family.value
    assert check.name.replace("-", "_").endswith(module)


@pytest.mark.parametrize("module", ["our_checks", "our.checks", "ddpdoctor.checks"])
def test_a_check_of_the_user_is_called_as_its_class_says(module: str):
    own = type("Own", (Check,), {"__module__": module, "name": "own"})
    assert own.name == "own"


def test_a_finding_has_the_reason_and_the_fix_of_its_page_where_it_gives_none():
    finding = _Documented().warn("the disk is full")
    assert (finding.why, finding.fix) == ("Nothing can be written. Jobs fail.", "Free space:\n    rm old.pt")
    assert _Documented().warn("the disk is full", why="full", fix="rm").why == "full"


class _Documented(Check):
    """The disk is full.

    Why it matters:
        Nothing can be written.
        Jobs fail.

    Fix:
        Free space:
            rm old.pt
    """

    code = "OC002"


def test_names_are_unique():
    names = [check.name for check in registry.all_checks()]
    assert len(names) == len(set(names))


@each_file
def test_a_check_is_one_file_with_one_class(file: Path):
    classes = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)]
    bases = [ast.unparse(base) for kind in classes for base in kind.bases]
    assert bases.count("Check") + bases.count("HangCheck") == 1


@each_file
def test_a_check_imports_only_ddpdoctor_and_the_standard_library(file: Path):
    for module in imported(file):
        top, *rest = module.split(".")
        assert top == "ddpdoctor" or top in sys.stdlib_module_names, module
        assert rest[:1] != ["checks"], "nobody imports a check by name"


def imported(file: Path) -> list[str]:
    modules = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a check imports by full names"
            modules.append(node.module or "")
    return modules


@each_file
def test_a_headline_is_lower_case_without_a_full_stop_or_advice(file: Path):
    for headline in headlines(file):
        assert not headline.endswith("."), headline
        assert not re.match(r"[A-Z][a-z]+ ", headline) or headline.startswith("NCCL"), headline
        assert not re.search(r"\b(please|simply|should|illegal)\b", headline, re.IGNORECASE), headline


def headlines(file: Path) -> list[str]:
    """The first arguments of self.fail, self.warn and self.info that are written out, values as ``{}``."""
    calls = [
        node.args[0]
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("fail", "warn", "info")
        and node.args
    ]
    return [text for text in map(written_out, calls) if text]


def written_out(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def test_the_documentation_is_current():
    written = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    assert written == markdown(registry.all_checks()), MAKE_DOCS
    assert (ROOT / "docs" / "report.schema.json").read_text() == SCHEMA.read_text(), MAKE_DOCS
