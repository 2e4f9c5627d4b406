import json
import math

import pytest

from ddpdoctor.runs.run_reader import read_run
from ddpdoctor.runs.summary import summarize, summarize_all
from tests.support.run_folders import make_run, step_line


@pytest.fixture
def runs(tmp_path):
    speeds = {1: 100.0, 2: 180.0, 4: 240.0}
    return [read_run(make_run(tmp_path, f"{n}-ranks", ranks=n, speed=speed)) for n, speed in speeds.items()]


def test_speed_up_and_efficiency_are_against_the_single_process(runs):
    found = [(one.ranks, one.speed_up, one.efficiency) for one in summarize_all(runs)]
    assert found == [(1, 1.0, 1.0), (2, pytest.approx(1.8), pytest.approx(0.9)), (4, 2.4, pytest.approx(0.6))]


def changed(folder, section, **values):
    """The run, with other settings."""
    described = json.loads((folder / "run.json").read_text())
    described["config"][section] |= values
    (folder / "run.json").write_text(json.dumps(described))
    return read_run(folder)


def test_a_run_of_another_model_is_no_baseline(runs, tmp_path):
    other = changed(make_run(tmp_path, "other"), "model", width=64)
    (summary,) = summarize_all([other], runs)
    assert (summary.baseline, summary.speed_up, summary.efficiency) == (None, None, None)


def test_a_baseline_that_was_named_is_taken(runs):
    summary = summarize_all(runs, baseline=runs[1])[2]
    assert (summary.baseline, summary.speed_up) == ("2-ranks", pytest.approx(240 / 180))
    assert summary.efficiency == pytest.approx(240 / 180 * 2 / 4)


def test_the_speed_is_the_median_after_the_warm_up(tmp_path):
    lines = [step_line(step, speed=1.0 if step < 3 else 100.0) for step in range(1, 21)]
    run = read_run(make_run(tmp_path, "slow start", steps=0, lines=[*lines, step_line(21, speed=5.0)]))
    summary = summarize(run)
    assert summary.samples_per_second == 100.0
    assert summary.step_seconds == pytest.approx(0.16)


def test_the_best_evaluation_is_the_lowest_finite_loss(tmp_path):
    losses = {10: 0.9, 15: 0.4, 18: math.nan, 20: 0.6}
    lines = [{"kind": "evaluation", "step": s, "evaluation_loss": v} for s, v in losses.items()]
    summary = summarize(read_run(make_run(tmp_path, "evaluated", lines=lines)))
    assert (summary.evaluation_loss, summary.evaluation_step) == (0.4, 15)


def test_json_has_no_number_that_json_does_not_know(tmp_path):
    diverged = read_run(make_run(tmp_path, "diverged", steps=0, lines=[step_line(1, loss=math.nan)]))
    told = json.loads(json.dumps(summarize(diverged).to_json(), allow_nan=False))
    assert told["last_loss"] == "nan"


def test_a_run_without_an_end_took_the_time_of_its_steps(tmp_path):
    run = read_run(make_run(tmp_path, "killed", steps=50, finished=None))
    assert summarize(run).seconds == pytest.approx(50 * 0.16)


def test_an_empty_run_has_a_summary(tmp_path):
    summary = summarize(read_run(make_run(tmp_path, "empty", steps=0)))
    assert (summary.steps, summary.last_loss, summary.samples_per_second) == (0, None, None)
