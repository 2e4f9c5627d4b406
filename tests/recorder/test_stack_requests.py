"""The recorder answers from its background thread, whatever the main thread does."""

import json
import os
from types import SimpleNamespace

import pytest

from ddpdoctor.hang import heartbeats
from ddpdoctor.recorder.patches import background
from ddpdoctor.recorder.patches.background import Asked, main_thread


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Of a torch without flight recorder, whether or not another test has imported the real one."""
    monkeypatch.setitem(background.sys.modules, "torch._C._distributed_c10d", SimpleNamespace())
    return SimpleNamespace(
        folder=str(tmp_path), torch=None, rank=3, writer=SimpleNamespace(name=f"{os.getpid()}-5")
    )


def test_a_request_is_answered_once(session, tmp_path):
    looking = Asked(session)
    looking.look()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / background.REQUEST).write_text("first")
    looking.look()
    answer = tmp_path / f"{os.getpid()}-5.stack.json"
    said = json.loads(answer.read_text())
    assert (said["asked"], said["rank"], said["pid"], said["flight"]) == ("first", 3, os.getpid(), False)
    answer.unlink()
    looking.look()
    assert not answer.exists()


def test_what_the_flight_recorder_holds_is_kept_beside_the_answer(session, tmp_path, monkeypatch):
    c10d = SimpleNamespace(_dump_fr_trace=lambda: b"pickled")
    monkeypatch.setitem(background.sys.modules, "torch._C._distributed_c10d", c10d)
    looking = Asked(session)
    (tmp_path / background.REQUEST).write_text("first")
    looking.look()
    assert json.loads((tmp_path / f"{os.getpid()}-5.stack.json").read_text())["flight"]
    assert (tmp_path / f"{os.getpid()}-5.flight").read_bytes() == b"pickled"


def test_a_request_from_before_the_process_is_not_its_own(session, tmp_path):
    (tmp_path / background.REQUEST).write_text("first")
    Asked(session).look()
    assert [one.name for one in tmp_path.iterdir()] == [background.REQUEST]


def test_where_the_main_thread_is():
    function, file, line = main_thread()[-2]
    assert (function.rpartition(".")[2], file) == ("test_where_the_main_thread_is", __file__)
    assert line == test_where_the_main_thread_is.__code__.co_firstlineno + 1


@pytest.mark.parametrize("name", ["_dump_fr_trace", "_dump_nccl_trace"])
def test_the_flight_recorder_of_every_torch(monkeypatch, name):
    c10d = SimpleNamespace(**{name: lambda: b"pickled"})
    monkeypatch.setitem(background.sys.modules, "torch._C._distributed_c10d", c10d)
    assert background.flight(None) == b"pickled"


def test_a_torch_without_flight_recorder(monkeypatch):
    monkeypatch.setitem(background.sys.modules, "torch._C._distributed_c10d", SimpleNamespace())
    assert background.flight(None) is None


def test_whoever_asks_gets_the_answers_to_his_own_question(session, tmp_path, monkeypatch):
    looking, pid = Asked(session), os.getpid()
    monkeypatch.setattr(heartbeats.time, "sleep", lambda seconds: looking.look())
    (found,) = heartbeats.ask(tmp_path, [pid]).values()
    assert (found.pid, found.flight) == (pid, None)
    assert found.stack[-1].function.endswith("main_thread")
    monkeypatch.setattr(heartbeats.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(heartbeats, "SECONDS", 0.0)
    assert heartbeats.ask(tmp_path, [pid]) == {}


def test_records_that_may_not_be_written_have_no_answers(tmp_path):
    assert heartbeats.ask(tmp_path / "absent", [1]) == {}
