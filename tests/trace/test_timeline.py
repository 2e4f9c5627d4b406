"""The timeline is a file of Chrome's trace events: what its format demands, and what people look for in it."""

import pytest

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, SampledProcess
from ddpdoctor.hang.flight.folder import read_folder
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.trace import Trace, timeline
from tests.support.flight import half, ring, waiting, write_job
from tests.support.recordings import recorded, replace, where
from tests.support.timelines import events_of


def written(trace, tmp_path) -> list[dict]:
    file = tmp_path / "timeline.json"
    timeline.write(trace, file)
    return events_of(file)


def named(events: list[dict], name: str, rank: int = 0) -> list[dict]:
    return [one for one in events if one["name"] == name and one["pid"] == rank]


def clocked(trace: Trace) -> Trace:
    """Two hosts, whose times are unlike and whose clocks are right."""
    return replace(
        trace,
        ranks=tuple(
            replace(one, recording=replace(one.recording, clock=1000.0, host="node0"))
            for one in trace.ranks
            if one.recording
        ),
    )


def test_a_rank_is_a_process_with_its_steps_passes_and_ends(tmp_path):
    events = written(clocked(recorded(2)), tmp_path)
    assert named(events, "process_name", 1)[0]["args"] == {"name": "rank 1 on node0"}
    (forward, *_) = named(events, "forward")
    assert (forward["ts"], forward["args"]["at"]) == (1_000_200_000, "train.py:48 in main")
    assert [one["dur"] for one in named(events, "training over loader 0")] == [1_800_000, 1_800_000]
    assert len(named(events, "SGD.step")) == 4
    assert named(events, "end: returned")[0]["args"]["status"] == 0


def test_a_collective_that_never_ended_lasts_to_the_end(tmp_path):
    stuck = Collective(50.0, where(60), "barrier", number=3, ended=False)
    right = Collective(3.0, where(61), "all_reduce", shape=(4, 2), dtype="float32", seconds=0.5)
    trace = clocked(recorded(2, lambda rank, one: replace(one, collectives=(right, stuck), exit=None)))
    events = written(trace, tmp_path)
    (barrier,) = named(events, "barrier")
    assert (barrier["dur"], barrier["args"]["ended"]) == (50_000_000, False)
    assert named(events, "all_reduce")[0]["args"]["shape"] == "[4, 2]"


def test_slices_that_cross_go_to_a_further_track(tmp_path):
    saves = (
        Save("/a.pt", where(5), 1.0, 3.0),
        Save("/b.pt", where(6), 2.0, 4.0),
        Save("", where(7), 4.0, 5.0),
    )
    events = written(recorded(1, lambda rank, one: replace(one, saves=saves)), tmp_path)
    assert [one["tid"] for one in named(events, "save")] == [301, 302, 301]
    tracks = {one["tid"]: one["args"]["name"] for one in named(events, "thread_name")}
    assert (tracks[301], tracks[302]) == ("files", "files 2")


@pytest.mark.parametrize("as_json", [False, True])
def test_dumps_of_the_flight_recorder_alone(tmp_path, as_json):
    def entries(rank):
        held = [*ring(1, 3), half("send", rank, 1 - rank, 1), *([] if rank else [waiting(4), waiting(5)])]
        return [{**one, "time_created_ns": one["time_created_ns"] + n} for n, one in enumerate(held)]

    folder = write_job(tmp_path / "dumps", 2, entries, as_json=as_json)
    events = written(Trace(ranks=(), snapshot=HangSnapshot(flight=read_folder(folder).ranks)), tmp_path)
    calls = named(events, "all_reduce")
    assert [one["args"]["number"] for one in calls] == [1, 2, 3, 4, 5]
    assert (calls[0]["dur"], calls[0]["args"]["at"]) == (200, "/jobs/train.py:88 in train_step")
    assert calls[3]["args"]["state"] == "started"
    assert len(named(events, "send 0->1")) == 1


def test_where_a_job_stands(tmp_path):
    stack = (Frame("main", "/jobs/train.py", 40), Frame("fetch", "/jobs/train.py", 12))
    seen = HangSnapshot((SampledProcess(7, 0, host="node1", doing=Doing.WAITS, stack=stack, again=stack),))
    events = written(Trace(ranks=(), snapshot=seen), tmp_path)
    (state,) = named(events, "stands in fetch (/jobs/train.py:12)")
    assert state["args"]["stack"] == "main (/jobs/train.py:40)\nfetch (/jobs/train.py:12)"


def test_a_dump_whose_file_is_gone_leaves_the_rest(tmp_path):
    folder = write_job(tmp_path / "dumps", 2, lambda rank: ring(1, 3))
    seen = HangSnapshot(flight=read_folder(folder).ranks)
    (folder / "nccl_trace_rank_0").unlink()
    events = written(Trace(ranks=(), snapshot=seen), tmp_path)
    assert not named(events, "all_reduce", 0)
    assert len(named(events, "all_reduce", 1)) == 3
