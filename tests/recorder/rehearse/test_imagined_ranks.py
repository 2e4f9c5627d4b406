"""The places of the real ranks in a job of which most ranks are imaginary, from the environment alone."""

import socket

import pytest

from ddpdoctor.recorder.rehearse.imagined_collectives import Members
from ddpdoctor.recorder.rehearse.simulated_hosts import ImaginedJob, missing_file, take_place

JOB = ImaginedJob(20, 8, (0, 1, 8, 19))


def environment(process, **more):
    asked = {"DDPDOCTOR_WORLD_SIZE": "20", "DDPDOCTOR_RANKS": "0,1,8,19", "DDPDOCTOR_NPROC": "8"}
    return {**asked, "LOCAL_RANK": str(process), "RANK": str(process), "WORLD_SIZE": "4", **more}


@pytest.fixture
def names(monkeypatch):
    for name in ("gethostname", "getaddrinfo", "gethostbyname", "gethostbyaddr"):
        monkeypatch.setattr(socket, name, getattr(socket, name))
    monkeypatch.setattr("platform.node", lambda: "here")


def placed(process, **more):
    environ, argv = environment(process, **more), ["train.py", f"--local-rank={process}"]
    take_place(environ, argv)
    return environ, argv


def test_a_process_becomes_the_rank_that_it_stands_for(names):
    environ, argv = placed(3)
    assert (environ["RANK"], environ["WORLD_SIZE"], environ["LOCAL_RANK"]) == ("19", "20", "3")
    # The last of three hosts has what is left of 20 ranks.
    assert (environ["GROUP_RANK"], environ["GROUP_WORLD_SIZE"], environ["LOCAL_WORLD_SIZE"]) == (
        "2",
        "3",
        "4",
    )
    assert argv[1] == "--local-rank=3"
    assert socket.gethostname() == "node2"
    assert socket.gethostbyname("node2") == "127.0.0.1"


def test_a_child_of_a_rank_keeps_its_place(names):
    environ, argv = placed(2)
    before = dict(environ)
    take_place(environ, argv)
    assert environ == before


def test_a_process_that_is_no_rank_is_left_as_it_is(names):
    environ = environment(0)
    del environ["LOCAL_RANK"]
    before = dict(environ)
    take_place(environ, ["train.py"])
    assert environ == before


def test_imaginary_ranks_are_stood_for_in_turns():
    members = Members(tuple(range(20)), rank=8, real=JOB.real)
    assert [members.players[rank] for rank in JOB.real] == [0, 1, 2, 3]
    assert set(members.players) == {0, 1, 2, 3}
    assert members.process(8) == 2
    assert members.process(7) is None


@pytest.mark.parametrize(
    ("name", "of_imaginary"),
    [("out/part_7.pt", True), ("out/rank19.pt", False), ("weights.pt", False), ("shard-0007.bin", True)],
)
def test_a_file_of_an_imaginary_rank_is_missing_because_of_us(name, of_imaginary):
    error = FileNotFoundError(2, "No such file or directory", name)
    assert bool(missing_file(error, JOB)) is of_imaginary
    assert not missing_file(error, None)
    assert not missing_file(ValueError(name), JOB)
