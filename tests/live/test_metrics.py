"""A running job as metrics, read as Prometheus reads them."""

import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ddpdoctor.live.job import LiveJob, LiveRank, State
from ddpdoctor.live.metrics import Metrics
from ddpdoctor.nodes.agreement import RunState
from ddpdoctor.recorder.events.files import Save


def rank(number: int, work: float | None) -> LiveRank:
    return LiveRank(number, "node1", State.RUNS, 12, 0.25, 0.1, 0.2, work, "forward", 1 << 30, None, 0.5)


JOB = LiveJob(
    (rank(0, 0.01), rank(1, 0.05)), world_size=2, restarts=1, save=Save("a.pt", None, 1.0, 2.0), save_age=7.0
)


def values(text: str) -> dict[tuple[str, str], float]:
    """The value of each sample by its name and its rank or state."""
    return {
        (sample.name, sample.labels.get("rank", sample.labels.get("state", ""))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_an_endpoint_has_the_values_of_each_rank() -> None:
    with closing(Metrics("127.0.0.1:0")) as metrics:
        metrics.take(JOB, RunState.STILL)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
            seen = values(answer.read().decode())
    assert seen["ddpdoctor_steps_total", "1"] == 12
    assert seen["ddpdoctor_work_seconds", "1"] == 0.05
    assert seen["ddpdoctor_slowest", "1"] == 1
    assert seen["ddpdoctor_slowest", "0"] == 0
    assert (seen["ddpdoctor_state", "still"], seen["ddpdoctor_state", "moves"]) == (1, 0)
    assert seen["ddpdoctor_restarts_total", ""] == 1
    assert seen["ddpdoctor_checkpoint_age_seconds", ""] == 7


def test_a_file_is_there_from_the_start_and_has_the_last_values(tmp_path: Path) -> None:
    file = tmp_path / "job.prom"
    with closing(Metrics(str(file))) as metrics:
        assert values(file.read_text())["ddpdoctor_state", "moves"] == 1
        metrics.take(JOB, RunState.OVER)
    seen = values(file.read_text())
    assert seen["ddpdoctor_state", "over"] == 1
    assert seen["ddpdoctor_memory_bytes", "0"] == 1 << 30


@pytest.mark.parametrize("target", [":99999", ":80x", "host:", "99999"])
def test_an_address_without_a_port_is_no_file(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="no port"):
        Metrics(target)
    assert not list(tmp_path.iterdir())


def test_what_is_not_known_is_left_out() -> None:
    with closing(Metrics("127.0.0.1:0")) as metrics:
        metrics.take(LiveJob((rank(0, None),), 1, 0, None, 0.0), RunState.MOVES)
        names = {family.name for family in metrics.collect()}
        assert "ddpdoctor_checkpoint_age_seconds" not in names
        (work,) = [family for family in metrics.collect() if family.name == "ddpdoctor_work_seconds"]
        assert work.samples == []


def test_a_port_that_is_taken_is_an_error() -> None:
    with closing(Metrics("127.0.0.1:0")) as metrics, pytest.raises(OSError, match="in use"):
        Metrics(f"127.0.0.1:{metrics.port}")
