from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.files import Save
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where


def saving(prefix):
    save = Save("/jobs/last.pt", where(80), 20.0, 20.1, prefix=prefix)
    return recorded(change=lambda rank, one: one if rank else replace(one, saves=(save,)))


def test_names_of_the_wrapper_are_information():
    finding = only_finding("DD407", Source.RUN, saving("module."))
    assert finding.level is Level.INFO
    assert finding.headline == "rank 0 saves names with the prefix 'module.' to 'last.pt'"
    assert finding.where == where(80)


def test_names_of_the_bare_model_pass():
    passed("DD407", Source.RUN, saving(None))


def test_nothing_saved_is_skipped():
    skipped("DD407", Source.RUN, recorded())
