"""A standstill kept as a folder: read back as it was, merged from several hosts, and refused where it was made up."""

import contextlib
import json
import os
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.hang_snapshot import ActiveException, Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.hang import snapshots
from ddpdoctor.hang.flight.folder import read_files
from ddpdoctor.hang.flight.unpickle import Refused

FRAME = Frame("main", "/jobs/train.py", 12)
FULL = SampledProcess(
    *(101, 0, ProcessRole.RANK, "node-a", "python train.py", Doing.WAITS, "futex", (FRAME,), (FRAME, FRAME)),
    native=("c10d::Reducer::finalize_backward (libtorch_cpu.so)",),
    wakes=2.0,
    changes=True,
    from_interpreter=True,
    unseen="ptrace is not allowed",
    exit_status=-9,
    peer=3,
    handles=ActiveException("KeyError", "'img'", (FRAME, FRAME), FRAME, FRAME),
)


def snapshot(host: str = "node-a", rank: int = 0, **values: object) -> HangSnapshot:
    return HangSnapshot((replace(FULL, host=host, rank=rank),), 7.5, 4, 1800.0, **values)


def entry(number: int) -> dict[str, object]:
    shapes = {
        "input_sizes": [[3]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3]],
        "output_dtypes": ["Float"],
    }
    known = {"process_group": ["0", "default_pg"], "profiling_name": "gloo:all_reduce", "state": "scheduled"}
    return {
        **shapes,
        **known,
        "record_id": number,
        "collective_seq_id": number,
        "is_p2p": False,
        "frames": [],
    }


def test_every_field_of_a_process_is_kept():
    assert [one.name for one in fields(SampledProcess) if getattr(FULL, one.name) == one.default] == ["role"]


def test_what_is_written_is_read(tmp_path):
    snapshots.write(snapshot(unseen=("node-b was not seen",)), tmp_path)
    assert snapshots.read(tmp_path) == snapshot(unseen=("node-b was not seen",))


@pytest.mark.parametrize("apart", [False, True], ids=["copied into one folder", "a folder for each host"])
def test_what_several_hosts_wrote_is_one(tmp_path, apart):
    for number, host in enumerate(("node-a", "node-b")):
        snapshots.write(snapshot(host, number), tmp_path / host if apart else tmp_path)
    found = snapshots.read(tmp_path)
    assert {one.host: one.rank for one in found.processes} == {"node-a": 0, "node-b": 1}
    assert (found.seconds, found.world_size, found.timeout) == (7.5, 4, 1800.0)


def test_two_folders_are_one(tmp_path):
    for number, host in enumerate(("node-a", "node-b")):
        snapshots.write(snapshot(host, number), tmp_path / host)
    assert set(snapshots.read(tmp_path / "node-a", tmp_path / "node-b").ranks) == {0, 1}


def test_flight_recorders_go_with_it(tmp_path):
    source = tmp_path / "records" / "101-5.flight"
    source.parent.mkdir()
    source.write_text(json.dumps({"version": "2.10", "entries": [entry(1), entry(2)]}))
    dumps = read_files({source: 3}).ranks
    snapshots.write(snapshot(flight=dumps), tmp_path / "kept")
    source.unlink()
    found = snapshots.read(tmp_path / "kept")
    assert [len(dump.rings["0"].numbers) for dump in found.flight.values()] == [2]
    assert (list(found.flight), found.unseen) == ([3], ())


def test_records_are_moved_into_a_folder_that_holds_those_of_another_host(tmp_path):
    for host in ("node-a", "node-b"):
        records, staging = tmp_path / f"{host}-records", tmp_path / "kept" / f".{host}"
        records.mkdir()
        (records / f"{host}.jsonl").write_text("{}\n")
        snapshots.write(snapshot(host), staging, records)
        snapshots.move_into(staging, tmp_path / "kept")
    found = sorted(str(one.relative_to(tmp_path / "kept")) for one in (tmp_path / "kept").rglob("*.*"))
    assert found == [f"{host}-101.snapshot.json" for host in ("node-a", "node-b")] + [
        f"record/{host}.jsonl" for host in ("node-a", "node-b")
    ]


def written(folder: Path) -> Path:
    snapshots.write(snapshot(), folder)
    return folder / "node-a-101.snapshot.json"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "its schema is 2, and this version reads 1"),
        ({"schema": "x" * 100}, "its schema is 'xxxxxxxxxxxxxxxxxxx, and this version reads 1"),
        ({"seconds": "long"}, "str in place of float"),
        ({"seconds": float("nan")}, "the number of seconds is out of range"),
        ({"world_size": -1}, "the number of world_size is out of range"),
        ({"world_size": 10**400}, "the number of world_size is out of range"),
        ({"world_size": True}, "bool in place of int"),
        ({"flight": {"0": "../../etc/passwd"}}, "a dump's name leads out of the folder"),
        ({"flight": {"0": "/etc/passwd"}}, "a dump's name leads out of the folder"),
        ({"flight": {"zero": "a"}}, "invalid literal for int() with base 10: 'zero'"),
        ({"flight": []}, "list in place of a mapping"),
        ({"processes": [[]]}, "SampledProcess: list in place of its fields"),
        (
            {"processes": [{"pid": 1}]},
            "SampledProcess.__init__() missing 1 required positional argument: 'rank'",
        ),
        ({"processes": [{"pid": 1, "rank": 0, "doing": "dreams"}]}, "'dreams' is not a valid Doing"),
        ({"unseen": ["x"] * 5001}, "a list has 5001 values, and 5000 are the most"),
        ({"unseen": [1]}, "int in place of str"),
    ],
)
def test_what_was_made_up_is_refused_in_a_sentence(tmp_path, change, said):
    file = written(tmp_path)
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(Refused) as refused:
        snapshots.read(tmp_path)
    assert str(refused.value) == f"{file.name} is not what ddpdoctor writes: {said}"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '"\\ud800"', "\0"])
def test_what_is_no_json_is_refused(tmp_path, text):
    written(tmp_path).write_text(text)
    with pytest.raises(Refused, match="is not what ddpdoctor writes"):
        snapshots.read(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "LARGEST", 10)
    written(tmp_path)
    with pytest.raises(Refused, match="it has 0 MiB; at most 0 MiB are read"):
        snapshots.read(tmp_path)


def test_pipes_and_ways_out_of_the_folder_are_no_files_of_it(tmp_path):
    folder, outside = tmp_path / "kept", written(tmp_path / "outside")
    folder.mkdir()
    os.mkfifo(folder / "pipe.snapshot.json")
    (folder / "link.snapshot.json").symlink_to(outside)
    assert not snapshots.is_kept(folder)
    with pytest.raises(Refused, match=r"no file ends with \.snapshot\.json"):
        snapshots.read(folder)


def test_a_dump_that_is_a_pipe_or_gone_is_told_and_not_opened(tmp_path):
    file = written(tmp_path)
    os.mkfifo(tmp_path / "pipe_rank_1")
    said = {**json.loads(file.read_text()), "flight": {"1": "pipe_rank_1", "2": "gone_rank_2"}}
    file.write_text(json.dumps(said))
    found = snapshots.read(tmp_path)
    assert found.flight == {}
    assert found.unseen == (
        "flight recorders that cannot be read: pipe_rank_1 is not there, gone_rank_2 is not there",
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


TOP = ("schema", "seconds", "world_size", "timeout", "unseen", "flight", "processes")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=st.sampled_from([*TOP, *(one.name for one in fields(SampledProcess))]), value=VALUES)
def test_any_values_are_read_or_refused(tmp_path, where, value):
    file = written(tmp_path)
    said = json.loads(file.read_text())
    changed = said if where in TOP else said["processes"][0]
    changed[where] = value
    file.write_text(json.dumps(said))
    with contextlib.suppress(Refused):
        snapshots.read(tmp_path)
