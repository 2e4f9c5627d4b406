import pytest

from ddpdoctor import registry
from ddpdoctor.model import Kind, Source
from ddpdoctor.recorder.events.files import FileRead, Load
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where

DIRECTORY = "PytorchStreamReader failed reading zip archive: failed finding central directory"
LOAD = Load("/jobs/last.pt", where(82), 20.0, 20.1, error=f"RuntimeError: {DIRECTORY}")


def reading(load, raised=None):
    return recorded(change=lambda rank, one: replace(one, loads=(load,), raised=raised))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("RuntimeError", DIRECTORY),
        ("EOFError", "Ran out of input"),
        ("OSError", "[Errno 22] Invalid argument"),
        ("RuntimeError", "unexpected EOF, expected 3 more bytes. The file might be corrupted."),
    ],
)
def test_a_read_that_ends_the_run(kind, message):
    load = replace(LOAD, error=f"{kind}: {message}")
    finding = only_finding("DD404", Source.RUN, reading(load, Raised(kind, message, 20.2)))
    assert finding.headline == "'last.pt' is not complete, so ranks 0-1 cannot read it"
    assert finding.where == where(82)
    assert registry.by_exception(f"{kind}: {message}").code == "DD404"


def test_a_script_that_goes_on_from_an_older_one_is_right():
    passed("DD404", Source.RUN, reading(LOAD))


def test_another_exception_later_is_not_its_fault():
    passed("DD404", Source.RUN, reading(LOAD, Raised("KeyError", "'model'", 21.0)))


def test_no_read_is_skipped():
    assert skipped("DD404", Source.RUN, recorded()).reason == "no checkpoint was read"


def test_an_invalid_argument_elsewhere_is_not_its_fault():
    raised = Raised("OSError", "[Errno 22] Invalid argument", 21.0)
    passed("DD404", Source.RUN, reading(replace(LOAD, error=None), raised))


def test_a_file_of_another_kind_is_named_so_that_who_raced_for_it_explains_it():
    raised = Raised("_pickle.UnpicklingError", "pickle data was truncated", 21.0, at=where(12))
    read = Record.made(FileRead("/jobs/features.pkl", 20.9, where(11)))
    trace = recorded(change=lambda rank, one: replace(one, record=read, loads=(), raised=raised))
    finding = only_finding("DD404", Source.RUN, trace)
    assert finding.headline == "'features.pkl' is not complete, so ranks 0-1 cannot read it"
    assert finding.about == Kind.PATH.of("/jobs/features.pkl")
    assert finding.explained_by == ("DD020",)
