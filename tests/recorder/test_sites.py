"""Places in the user's code."""

import sys
from pathlib import Path

import pytest

from ddpdoctor.recorder.sites import Sites


@pytest.fixture
def sites() -> Sites:
    return Sites("/nowhere/torch")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows no columns before 3.11")
def test_calls_on_one_line_are_places_with_columns_of_their_own_and_equal_lines(sites):
    first, second = sites.here(), sites.here()
    assert (first.file, first.line) == (second.file, second.line) == (__file__, first.line)
    line = Path(__file__).read_text(encoding="utf-8").split("\n")[first.line - 1]
    assert [line[slice(*site.columns)] for site in (first, second)] == ["sites.here()"] * 2
    assert first.columns < second.columns


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows no columns before 3.11")
def test_a_call_over_several_lines_has_no_columns(sites):
    library_call = eval("lambda sites, *_: sites.here()")
    assert library_call(sites).columns is not None
    spread = library_call(
        sites,
        1,
    )
    assert spread.columns is None


def test_the_place_is_the_same_each_time(sites):
    assert len({id(sites.here()) for _ in range(3)}) == 1


def test_a_function_that_hands_on_what_it_was_given_is_passed_over(sites):
    def show(*values, end=""):
        return sites.here((*values, end)), sites.here((*values, "made here"))

    def say(text):
        return show(text, "made by say")

    handed_on, made_here = say(f"{sites}")
    assert [handed_on.function.split(".")[-1], made_here.function.split(".")[-1]] == ["say", "show"]
    assert (
        sites.here(("of the module",)).function
        == test_a_function_that_hands_on_what_it_was_given_is_passed_over.__name__
    )
