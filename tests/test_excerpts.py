"""The lines of the user's files that a report shows."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.excerpts import with_excerpts
from ddpdoctor.model import Evidence, Excerpt, Finding, Level, Mark, Report, Where
from ddpdoctor.redact import clean

SCRIPT = "".join(f"line {number}\n" for number in range(1, 41))
FINDING = Finding("DD999", Level.FAIL, "headline", "why", "fix", where=Where("train.py", 20, "main"))
SECRET = "s3cr3t-value-of-mine"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train.py", SCRIPT)
    return tmp_path


def write(file: Path, text: str, age: float = 60.0) -> None:
    file.write_text(text, encoding="utf-8")
    os.utime(file, (time.time() - age,) * 2)


def excerpts(folder: Path, finding: Finding = FINDING) -> tuple[Excerpt, ...]:
    report = Report("0.1.0", (), 1, 0.1, findings=(finding,), since=time.time())
    return with_excerpts(report, folder).findings[0].excerpts


def at(line: int, *ranks: int, file: str = "train.py") -> Evidence:
    return Evidence("text", ranks, Where(file, line))


def test_the_line_and_two_on_either_side(folder):
    (excerpt,) = excerpts(folder)
    assert excerpt == Excerpt(
        "train.py", 18, tuple(f"line {number}" for number in range(18, 23)), (Mark(20, main=True),)
    )


@pytest.mark.parametrize(("line", "first", "count"), [(1, 1, 3), (2, 1, 4), (40, 38, 3)])
def test_at_the_ends_of_the_file_there_are_fewer(folder, line, first, count):
    (excerpt,) = excerpts(folder, replace(FINDING, where=Where("train.py", line)))
    assert (excerpt.first, len(excerpt.lines)) == (first, count)


def test_blank_lines_at_the_edges_are_left_out(folder):
    write(folder / "train.py", "a\n\n\nb\n\n  \n")
    (excerpt,) = excerpts(folder, replace(FINDING, where=Where("train.py", 4)))
    assert (excerpt.first, excerpt.lines) == (4, ("b",))


def test_places_that_are_near_are_shown_together_with_their_ranks(folder):
    (excerpt,) = excerpts(folder, replace(FINDING, evidence=(at(19, 0), at(20, 1), at(20, 3))))
    assert excerpt.marks == (Mark(19, (0,)), Mark(20, (1, 3), main=True))
    assert (excerpt.first, len(excerpt.lines)) == (18, 4)


def test_places_apart_are_shown_apart_and_no_more_than_three(folder):
    write(folder / "other.py", SCRIPT)
    evidence = (at(5, 0), at(20, 1), at(7, 2, file="other.py"), at(30, 3), Evidence("no place", (4,)))
    shown = excerpts(folder, replace(FINDING, evidence=evidence))
    assert [(excerpt.file, excerpt.first, len(excerpt.lines)) for excerpt in shown] == [
        ("train.py", 5, 1),
        ("train.py", 19, 3),
        ("other.py", 7, 1),
    ]


@pytest.mark.parametrize(
    "where",
    [
        None,
        Where("train.py"),
        Where("train.py", 42),
        Where("missing.py", 1),
        Where("<string>", 1),
        Where("a\0b", 1),
    ],
)
def test_what_is_in_no_file_is_not_shown(folder, where):
    assert excerpts(folder, replace(FINDING, where=where)) == ()


def test_a_file_that_changed_since_is_not_shown(folder):
    write(folder / "train.py", SCRIPT, age=-60)
    assert excerpts(folder) == ()


def test_neither_a_folder_nor_a_pipe_is_read(folder):
    os.mkfifo(folder / "pipe.py")
    (folder / "folder.py").mkdir()
    for name in ("pipe.py", "folder.py"):
        assert excerpts(folder, replace(FINDING, where=Where(name, 1))) == ()


def test_secrets_and_control_characters_are_gone_when_the_report_leaves(folder):
    write(
        folder / "train.py",
        f'PASSWORD = "hunter2"\nlogin("{SECRET}")\n\tprint("\x1b[2J\u202e")\nkey = "hf_abcdefghijklmnop"\n',
    )
    finding = replace(FINDING, where=Where("train.py", 2))
    report = Report("0.1.0", (), 1, 0.1, findings=(finding,), since=time.time())
    (excerpt,) = clean(with_excerpts(report, folder), {"MY_TOKEN": SECRET}).findings[0].excerpts
    assert excerpt.lines == (
        'PASSWORD = "***"',
        'login("***")',
        '    print("\\x1b[2J\\u202e")',
        'key = "***"',
    )


def test_bytes_that_are_no_text_are_shown_as_such(folder):
    (folder / "train.py").write_bytes(b"\xff\xfe = 1\r\nb = 2\r\n")
    os.utime(folder / "train.py", (0, 0))
    (excerpt,) = excerpts(folder, replace(FINDING, where=Where("train.py", 2)))
    assert excerpt.lines[1] == "b = 2"


def test_the_expression_is_marked_in_the_line_as_it_is_shown(folder):
    line = '\tgrüße = save("ü", state)\n'
    first = line.encode().index(b"save")
    write(folder / "train.py", line)
    (excerpt,) = excerpts(
        folder, replace(FINDING, where=Where("train.py", 1, columns=(first, len(line.encode()) - 1)))
    )
    (mark,) = excerpt.marks
    assert excerpt.lines[0][slice(*mark.columns)] == 'save("ü", state)'


@pytest.mark.parametrize("line", ['key = "hf_abcdefghijklmnop"; save(key)\n', "key\n"])
def test_an_expression_that_is_not_what_is_shown_is_not_marked(folder, line):
    write(folder / "train.py", line)
    (excerpt,) = excerpts(folder, replace(FINDING, where=Where("train.py", 1, columns=(30, 39))))
    assert excerpt.marks == (Mark(1, main=True),)
