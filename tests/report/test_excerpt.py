"""The lines that a finding is about, as a person sees them."""

from dataclasses import replace

import pytest

from ddpdoctor.model import Evidence, Excerpt, Level, Mark, Where
from ddpdoctor.report.detail import finding_lines
from tests.report.sample import UNUSED

LINES = (
    "if rank == 0:",
    '    torch.save(model.state_dict(), "last.pt")',
    'weights = torch.load("last.pt")  # all ranks',
    "model.load_state_dict(weights)",
)
WRITE, READ = Mark(21, (0,)), Mark(22, (1, 2), main=True)
TOGETHER = Excerpt("train.py", 20, LINES, (WRITE, READ))
RACE = replace(UNUSED, where=Where("train.py", 22, "main"), evidence=(), excerpts=(TOGETHER,))


def shown(finding, width=80):
    text = [line.text for line in finding_lines(finding, width)]
    return text[1 : text.index("")]


def test_lines_have_numbers_and_what_is_marked_the_ranks_that_are_there():
    assert shown(RACE) == [
        "  --> train.py:22 in main",
        "     |",
        "  20 | if rank == 0:",
        '  21 |     torch.save(model.state_dict(), "last.pt")',
        "     |     ----------------------------------------- rank 0",
        '  22 | weights = torch.load("last.pt")  # all ranks',
        "     | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ ranks 1-2",
        "  23 | model.load_state_dict(weights)",
    ]


def test_one_place_alone_needs_no_ranks():
    alone = replace(RACE, excerpts=(Excerpt("train.py", 99, ("a()", "b()"), (Mark(99, (0,), main=True),)),))
    assert shown(alone)[1:] == ["      |", "   99 | a()", "      | ^^^", "  100 | b()"]


def test_places_apart_and_in_other_files_are_apart():
    excerpts = (
        Excerpt("train.py", 22, LINES[2:3], (READ,)),
        Excerpt("train.py", 80, LINES[3:], (Mark(80, (3,)),)),
        Excerpt("lib/save.py", 5, LINES[1:2], (Mark(5, (0,)),)),
    )
    assert shown(replace(RACE, excerpts=excerpts)) == [
        "  --> train.py:22 in main",
        "     |",
        '  22 | weights = torch.load("last.pt")  # all ranks',
        "     | ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ ranks 1-2",
        "  ...",
        "  80 | model.load_state_dict(weights)",
        "     | ------------------------------ rank 3",
        "  ::: lib/save.py:5",
        "     |",
        '   5 |     torch.save(model.state_dict(), "last.pt")',
        "     |     ----------------------------------------- rank 0",
    ]


def test_an_expression_is_marked_alone_where_it_is_known():
    (first, end) = columns = (15, 33)
    assert LINES[1][first:end] == "model.state_dict()"
    race = replace(RACE, excerpts=(replace(TOGETHER, marks=(replace(WRITE, columns=columns), READ)),))
    assert shown(race)[3:5] == [
        '  21 |     torch.save(model.state_dict(), "last.pt")',
        "     |                ------------------ rank 0",
    ]


def test_the_mark_moves_with_lines_that_are_moved_to_the_left():
    lines = tuple(" " * 60 + line for line in LINES)
    marks = (replace(READ, columns=(70, 91)),)
    moved = shown(replace(RACE, excerpts=(Excerpt("train.py", 20, lines, marks),)))
    assert moved[4:6] == [
        '  22 | weights = torch.load("last.pt")  # all ranks',
        "     |           ^^^^^^^^^^^^^^^^^^^^^",
    ]


@pytest.mark.parametrize("columns", [(15, 500), (500, 600), (70, 76)])
def test_a_mark_stays_within_its_line(columns):
    marks = (replace(READ, columns=columns),)
    cut = shown(replace(RACE, excerpts=(Excerpt("train.py", 22, (LINES[2] + " + 1" * 30,), marks),)), 60)
    assert len(cut[-1]) <= len(cut[-2]) == 60
    assert "^" in cut[-1]


@pytest.mark.parametrize("width", [50, 60, 80])
def test_no_line_is_wider_than_the_terminal(width):
    long = tuple(" " * 30 + line + " + 1" * 30 for line in LINES)
    lines = shown(replace(RACE, excerpts=(replace(TOGETHER, lines=long),)), width)
    assert max(map(len, lines)) == width
    assert any(line.endswith(" ...") for line in lines)
    labels = [line.rpartition("rank")[2] for line in lines if set("^-") & set(line.partition("|")[2])]
    assert labels == [" 0", "s 1-2"]


def test_the_mark_has_the_colour_of_its_finding():
    for level, code in ((Level.FAIL, "1;31"), (Level.WARN, "33")):
        painted = [line.painted() for line in finding_lines(replace(RACE, level=level), 80)]
        assert any(f"\x1b[{code}m^^^" in line for line in painted)


def test_without_lines_there_is_only_the_place():
    assert shown(replace(UNUSED, evidence=(Evidence("x"),))) == ["  --> src/größe 1,2.py:88 in train_step"]
