import json

from ddpdoctor.runs.run_reader import Follower
from tests.support.run_folders import make_run, step_line


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def append(folder, text):
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(text)


def test_it_follows_complete_lines_and_tells_the_time_left(tmp_path):
    clock = Clock()
    follower = Follower(tmp_path / "run", clock)
    assert follower.look() is None
    folder = make_run(tmp_path, "run", steps=0)
    (folder / "run.json").write_text('{"steps": 100}')
    append(folder, json.dumps(step_line(10)) + "\n" + json.dumps(step_line(20))[:30])
    first = follower.look()
    assert (first.step.step, first.total, first.seconds_left) == (10, 100, None)
    assert follower.look() is None
    append(folder, json.dumps(step_line(20))[30:] + "\n" + '{"kind": "evaluation", "step": 20}\n')
    clock.now = 5.0
    second = follower.look()
    assert (second.step.step, second.seconds_left) == (20, 40.0)


def test_what_an_earlier_part_of_the_run_wrote_is_past(tmp_path):
    folder = make_run(tmp_path, "run", steps=5)
    follower = Follower(folder, Clock())
    assert follower.look() is None
    append(folder, json.dumps(step_line(6)) + "\n")
    assert follower.look().step.step == 6


def test_lines_that_a_resume_takes_away_are_no_trouble(tmp_path):
    folder = make_run(tmp_path, "run", steps=5)
    follower = Follower(folder, Clock())
    (folder / "metrics.jsonl").write_text(json.dumps(step_line(2)) + "\n")
    assert follower.look().step.step == 2
