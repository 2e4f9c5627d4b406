"""The same instance of a problem on several ranks, and the names of what findings are about."""

from dataclasses import dataclass

from ddpdoctor.model import Evidence, Kind, Where
from ddpdoctor.trace.instances import (
    by_first_line,
    by_key,
    by_line,
    by_value,
    files,
    of_loader,
    of_model,
    on_ranks,
)
from tests.support.recordings import recording, replace, where


@dataclass(frozen=True)
class Event:
    at: Where | None
    text: str = ""


FIRST, AGAIN, OTHER = Event(where(3), "a"), Event(where(3), "b"), Event(where(9), "c")


def test_instances_of_one_line_are_one_with_the_first_of_each_rank() -> None:
    assert by_line([(0, FIRST), (0, AGAIN), (1, AGAIN), (1, OTHER)]) == [{0: FIRST, 1: AGAIN}, {1: OTHER}]
    assert by_line([]) == []


def test_instances_by_what_they_have_in_common() -> None:
    assert by_key([(0, FIRST), (1, AGAIN)], lambda event: event.text) == [{0: FIRST}, {1: AGAIN}]


def test_things_that_ranks_share_by_the_line_of_the_first() -> None:
    shared = {"a.pt": {0: FIRST, 1: OTHER}, "b.pt": {2: AGAIN}, "c.pt": {1: OTHER}}
    by_files = [list(of_line) for of_line in by_first_line(shared, lambda event: event.at)]
    assert by_files == [["a.pt", "b.pt"], ["c.pt"]]


def test_the_fields_of_a_finding() -> None:
    assert on_ranks({0: FIRST, 2: AGAIN, 3: FIRST}, lambda event: event.text) == {
        "where": where(3),
        "evidence": (Evidence("a", (0, 3)), Evidence("b", (2,))),
    }


def test_ranks_by_value() -> None:
    assert by_value({0: 4, 1: 5, 2: 4}) == {4: (0, 2), 5: (1,)}


def test_files_as_a_headline_names_them() -> None:
    assert files(["/jobs/last.pt"]) == "'last.pt'"
    assert files(["/jobs/last.pt", "/jobs/last.pt", "/jobs/best.pt"]) == "'last.pt' and 1 more file"
    assert files(["/a", "/b", "/c"]) == "'a' and 2 more files"
    assert files([""]) == "a buffer"


def test_a_loader_and_a_model_have_one_name_wherever_they_are_spoken_of() -> None:
    (loader,), (wrapper,) = recording(0).loaders, recording(0).wrappers
    assert of_loader(loader) == of_loader(replace(loader, index=7)) == Kind.LOADER.of("train.py:40")
    assert of_loader(replace(loader, at=None)) == Kind.LOADER.of("loader 0")
    assert of_model(wrapper, replace(wrapper, index=1)) == Kind.MODEL.of("Linear", "Linear (wrapper 1)")
