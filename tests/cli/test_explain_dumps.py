"""``ddpdoctor explain`` of the flight recorder's dumps, alone and beside a job's output."""

import json
import os
import pickle

import pytest

from tests.support.command import in_process
from tests.support.flight import entry, ring, waiting, write_job
from tests.support.logs import raised, summary

TIMEOUT = (
    "[rank1]:[E1121 10:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 "
    "milliseconds before timing out.\n"
)


def without_rank_2(rank):
    return [*ring(1, 9), *([] if rank == 2 else [waiting(10)])]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_folder_of_dumps_and_the_dumps_themselves(tmp_path, as_json):
    folder = write_job(tmp_path / "dumps", 4, without_rank_2, as_json=as_json)
    for arguments in ([folder.name], sorted(f"{folder.name}/{file.name}" for file in folder.iterdir())):
        done = in_process("explain", *arguments, cwd=tmp_path)
        assert done.status == 1
        said = " ".join(done.out.split())
        assert (
            "FAIL[DD301]: rank 2 did not join all_reduce 10 of the default group, in which ranks 0-1, 3 wait"
            in said
        )
        assert "read 4 dumps, of ranks 0-3" in said


def test_dumps_of_a_healthy_job(tmp_path):
    write_job(tmp_path / "dumps", 4, lambda rank: ring(1, 9))
    done = in_process("explain", "dumps", cwd=tmp_path)
    assert (done.status, "FAIL" in done.out) == (0, False)


def test_what_only_tells_of_the_timeout_gives_way_to_the_dumps(tmp_path):
    write_job(tmp_path / "dumps", 4, without_rank_2)
    (tmp_path / "job.log").write_text(TIMEOUT)
    done = in_process("explain", "job.log", "dumps", "--format", "json", cwd=tmp_path)
    (finding,) = json.loads(done.out)["findings"]
    assert (finding["code"], finding["ranks"]) == ("DD301", [2])


def test_an_exception_stands_beside_the_dumps(tmp_path):
    write_job(tmp_path / "dumps", 4, without_rank_2)
    (tmp_path / "job.log").write_text(raised(2, "ValueError", "bad sample") + summary(2))
    done = in_process("explain", "job.log", "dumps", "--format", "json", cwd=tmp_path)
    assert {one["code"] for one in json.loads(done.out)["findings"]} == {"DD301", "DD304"}


class Runs:
    def __reduce__(self):
        return os.system, ("touch was-here",)


FRAME = {"name": "\x1b[2Jmain", "filename": "/jobs/\x1b]0;title\x07train.py", "line": 3}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(Runs(), "it imports posix.system", id="code"),
        pytest.param({"entries": [entry(-5)]}, "a sequence number is -5", id="a negative number"),
        pytest.param(
            {"entries": [entry(1, process_group=("\x1b[31m" * 9,), state=7)]}, "a text is a int", id="types"
        ),
        pytest.param({"\x1b[31mentries": 1}, "it has no list of entries", id="no entries"),
    ],
)
def test_a_hostile_dump_ends_in_a_sentence_and_status_2(tmp_path, said, why):
    (tmp_path / "fr_rank_0").write_bytes(pickle.dumps(said, protocol=2))
    done = in_process("explain", "fr_rank_0", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert why in done.err
    assert "\x1b" not in done.err
    assert not (tmp_path / "was-here").exists()


def test_hang_refuses_it_the_same_way(tmp_path):
    (tmp_path / "fr_rank_0\x1b[31m").write_bytes(pickle.dumps(Runs(), protocol=2))
    done = in_process("hang", "--flight-recorder", ".", "--quiet", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "it imports posix.system" in done.err
    assert "\x1b" not in done.err
    assert not (tmp_path / "was-here").exists()


def test_no_control_character_of_a_frame_reaches_the_terminal(tmp_path):
    write_job(
        tmp_path / "dumps",
        2,
        lambda rank: [waiting(1, frames=[FRAME], operation="all\x1b[31mreduce")] if rank else ring(1, 0),
    )
    done = in_process("explain", "dumps", cwd=tmp_path)
    assert done.status == 1
    assert "\\x1b[2Jmain" in done.out
    assert all(char.isprintable() or char == "\n" for char in done.out + done.err)


def test_hang_tells_of_a_dump_that_was_cut_off(tmp_path):
    folder = write_job(tmp_path / "dumps", 4, lambda rank: [*ring(1, 9), waiting(10)])
    (cut,) = (file for file in folder.iterdir() if file.name.endswith("2"))
    cut.write_bytes(cut.read_bytes()[:300])
    done = in_process("hang", "--flight-recorder", "dumps", "--quiet", cwd=tmp_path)
    assert done.status == 1
    assert "FAIL[DD301]: rank 2 left no dump" in done.out
    assert f"1 file left out, such as '{cut.name}'" in " ".join(done.out.split())
