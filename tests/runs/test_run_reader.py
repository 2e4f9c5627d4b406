import json
import os
import time

import pytest

from ddpdoctor.runs import run_reader
from ddpdoctor.runs.run_reader import find_runs, read_run
from tests.support.run_folders import make_run, step_line


def test_a_run_is_read(tmp_path):
    evaluation = {"kind": "evaluation", "step": 20, "epoch": 1, "evaluation_loss": 0.5}
    folder = make_run(tmp_path, "one", lines=[evaluation, {"kind": "checkpoint", "step": 20, "epoch": 1}])
    run = read_run(folder)
    assert (run.name, run.status, run.described.world_size, run.described.steps) == ("one", "finished", 2, 20)
    assert [step.step for step in run.steps] == list(range(1, 21))
    assert run.series("loss")[:2] == [(1, 5.0), (2, 2.5)]
    assert run.series("evaluation_loss") == [(20, 0.5)]
    assert run.checkpoints == (20,)
    assert run.problems == ()


def test_a_line_cut_off_by_a_kill_is_told_and_the_rest_is_read(tmp_path):
    folder = make_run(tmp_path, "killed", steps=3)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "step": 4, "lo')
    run = read_run(folder)
    assert [step.step for step in run.steps] == [1, 2, 3]
    assert run.problems == ("1 line of metrics.jsonl cannot be read",)


def test_steps_that_were_made_again_after_a_resume_count_once(tmp_path):
    again = [step_line(step, loss=9.0) for step in (3, 4)]
    run = read_run(make_run(tmp_path, "resumed", steps=5, lines=again))
    assert [(step.step, step.loss) for step in run.steps] == [(1, 5.0), (2, 2.5), (3, 9.0), (4, 9.0)]


HOSTILE = [
    b"[" * 50_000,
    b'{"step": ' + b"9" * 5_000 + b"}",
    b'{"step": -1}',
    b'{"step": true}',
    b'{"step": 1.5}',
    b"[1, 2]",
    b"\xff\xfe\x00",
    b'{"step": 7, "loss": "' + b"x" * 200_000 + b'"}',
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_that_is_no_measurement_is_passed_over(tmp_path, line):
    folder = make_run(tmp_path, "hostile", steps=0)
    (folder / "metrics.jsonl").write_bytes(line + b"\n" + json.dumps(step_line(8)).encode() + b"\n")
    run = read_run(folder)
    assert [step.step for step in run.steps] == [8]
    assert run.problems == ("1 line of metrics.jsonl cannot be read",)


@pytest.mark.parametrize(
    "odd",
    [{"loss": "low"}, {"grad_norm": True}, {"memory_bytes": 1e305}, {"memory_bytes": 10**400}],
    ids=["text", "bool", "float", "int"],
)
def test_a_line_with_a_value_of_a_wrong_type_is_passed_over(tmp_path, odd):
    run = read_run(make_run(tmp_path, "odd", steps=0, lines=[step_line(1, **odd), step_line(2, lr=None)]))
    assert [step.step for step in run.steps] == [2]
    assert run.problems == ("1 line of metrics.jsonl cannot be read",)


def test_a_loss_that_diverged_stays(tmp_path):
    (step,) = read_run(make_run(tmp_path, "diverged", steps=0, lines=[step_line(1, loss=float("inf"))])).steps
    assert step.loss == float("inf")


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"config": 3, "world_size": "many", "started": 5}'])
def test_a_description_that_is_none_leaves_the_metrics(tmp_path, text):
    folder = make_run(tmp_path, "bare", steps=2)
    (folder / "run.json").write_text(text)
    run = read_run(folder)
    assert len(run.steps) == 2
    assert (run.described.world_size, run.config, run.started) == (None, {}, None)


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(tmp_path):
    folder = make_run(tmp_path, "pipe")
    (folder / "metrics.jsonl").unlink()
    os.mkfifo(folder / "metrics.jsonl")
    assert read_run(folder).steps == ()


def test_a_file_without_end_is_read_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(run_reader, "LARGEST_METRICS", 4096)
    run = read_run(make_run(tmp_path, "huge", steps=1000))
    assert 10 < len(run.steps) < 100
    assert "has more than 4 KiB" in run.problems[0]


def test_a_run_that_was_killed_is_not_running_for_ever(tmp_path):
    folder = make_run(tmp_path, "gone", status="running", finished=None)
    assert read_run(folder).status == "running"
    assert read_run(folder, now=time.time() + 2 * run_reader.STALE_SECONDS).status == "unfinished"


def test_runs_are_found_oldest_first_and_nothing_else(tmp_path):
    make_run(tmp_path, "20260102-000000-b")
    make_run(tmp_path, "20260101-000000-a")
    (tmp_path / "notes").mkdir()
    assert [path.name for path in find_runs(tmp_path)] == ["20260101-000000-a", "20260102-000000-b"]
    assert find_runs(tmp_path / "20260102-000000-b") == [tmp_path / "20260102-000000-b"]
    assert find_runs(tmp_path / "absent") == []
