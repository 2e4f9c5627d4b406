from ddpdoctor.model import Source
from ddpdoctor.recorder.events.files import Load
from ddpdoctor.recorder.events.process import Device
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where


def loading(device_of, own_of=lambda rank: rank, map_location=None):
    def change(rank, one):
        load = Load(
            "/jobs/last.pt", where(60), 1.0, 1.1, map_location=map_location, devices=(device_of(rank),)
        )
        own = own_of(rank)
        devices = () if own is None else (Device(own, "set"), Device(0, "load"))
        return replace(one, loads=(load,), devices=devices)

    return recorded(3, change)


def test_everything_onto_the_first_gpu():
    finding = only_finding("DD406", Source.RUN, loading(lambda rank: "cuda:0"))
    assert finding.headline == "ranks 1-2 restore 'last.pt' onto cuda:0, not onto their own GPU"
    assert finding.where == where(60)
    assert finding.evidence[0].text == "restored onto cuda:0, no map_location; its own GPU is cuda:1"


def test_a_constant_map_location():
    finding = only_finding("DD406", Source.RUN, loading(lambda rank: "cuda:0", map_location="cuda:0"))
    assert all("map_location=cuda:0" in entry.text for entry in finding.evidence)


def test_its_own_gpu_or_the_host_passes():
    passed("DD406", Source.RUN, loading(lambda rank: f"cuda:{rank}"))
    passed("DD406", Source.RUN, loading(lambda rank: "cpu"))


def test_one_visible_gpu_for_each_rank_is_right():
    passed("DD406", Source.RUN, loading(lambda rank: "cuda:0", own_of=lambda rank: 0))


def test_no_gpu_is_skipped():
    assert (
        "no rank uses a GPU" in skipped("DD406", Source.RUN, loading(lambda r: "cpu", lambda r: None)).reason
    )
