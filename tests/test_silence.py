"""Findings that a comment or a pattern silences."""

from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.model import Finding, Level, Where
from ddpdoctor.silence import Silencer, note_of

FINDING = Finding(
    "DD103", Level.FAIL, "the order repeats", "why", "fix", where=Where("src/train.py", 2, "main")
)


def silencer(folder: Path, line: str, **per_file: list[str]) -> Silencer:
    (folder / "src").mkdir(exist_ok=True)
    (folder / "src" / "train.py").write_text(f"first\n{line}\nlast\n")
    return Silencer(folder, folder, {name.replace("__", "/"): codes for name, codes in per_file.items()})


@pytest.mark.parametrize(
    ("line", "silenced"),
    [
        ("for x in loader:  # ddpdoctor: ignore[DD103]", True),
        ("for x in loader:  # ddpdoctor: ignore[DD206, DD103]", True),
        ("for x in loader:  # ddpdoctor: ignore[dd1]", True),
        ("for x in loader:  # ddpdoctor: ignore[set-epoch-missing]", True),
        ("for x in loader:  # noqa  #ddpdoctor:ignore", True),
        ("for x in loader:  # ddpdoctor: ignore[DD104]", False),
        ("for x in loader:  # ddpdoctor: ignore[]", False),
        ("for x in loader:  # ddpdoctor: ignored", False),
        ("for x in loader:", False),
    ],
)
def test_a_comment_on_the_line(line: str, silenced: bool, tmp_path: Path) -> None:
    assert silencer(tmp_path, line).hides(FINDING) is silenced


@pytest.mark.parametrize(
    "where",
    [None, Where("src/train.py"), Where("src/train.py", 99), Where("src/nosuch.py", 2), Where("<string>", 2)],
)
def test_without_such_a_line_nothing_is_silenced(where: Where | None, tmp_path: Path) -> None:
    finding = replace(FINDING, where=where)
    assert not silencer(tmp_path, "# ddpdoctor: ignore").hides(finding)


@pytest.mark.parametrize(
    ("pattern", "silenced"), [("src/*.py", True), ("train.py", True), ("test/*.py", False)]
)
def test_a_pattern_of_the_files_name(pattern: str, silenced: bool, tmp_path: Path) -> None:
    silencer(tmp_path, "")
    assert Silencer(tmp_path, tmp_path, {pattern: ["DD1"]}).hides(FINDING) is silenced


def test_a_pattern_is_about_its_codes_only(tmp_path: Path) -> None:
    silencer(tmp_path, "")
    assert not Silencer(tmp_path, tmp_path, {"*.py": ["DD2"]}).hides(FINDING)


def test_the_note_counts_what_is_silenced() -> None:
    assert note_of([FINDING]) == (
        "1 finding silenced by comments or per-file-ignores: DD103 at src/train.py:2"
    )
    assert note_of([]) is None
