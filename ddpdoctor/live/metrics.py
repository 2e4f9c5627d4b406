"""A running job as metrics of Prometheus: an endpoint that is scraped, or a file for the node exporter's collector."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ddpdoctor.live.job import LiveJob, LiveRank
from ddpdoctor.nodes.agreement import RunState

FILE_SECONDS = 10.0
"""Between two writes of the file."""
_ADDRESS = re.compile(r"(?P<host>[^/]*):(?P<port>\d+)")
_OF_A_RANK: tuple[tuple[str, str, Callable[[LiveRank], float | None]], ...] = (
    (
        "step_seconds",
        "Seconds from the end of a training step to that of the next.",
        lambda r: r.step_seconds,
    ),
    ("work_seconds", "Seconds of a training step that the rank itself works.", lambda r: r.work_seconds),
    ("data_wait_ratio", "Share of a training step that the rank waits for batches.", lambda r: r.data_share),
    ("rank_wait_ratio", "Share of a training step that the rank waits for others.", lambda r: r.wait_share),
    ("memory_bytes", "Resident memory of the rank's process.", lambda r: r.memory),
    ("no_progress_seconds", "Seconds since the rank last showed progress.", lambda r: r.still),
)


class NoClient(ImportError):
    """The client of Prometheus is not installed."""


class Metrics:
    """Publishes a job until it is closed.

    Args:
        target: ``:9400``, ``host:9400``, or the path of a file.

    Raises:
        NoClient: prometheus_client is not installed.
        OSError: the port or the file cannot be used.
    """

    def __init__(self, target: str) -> None:
        try:
            import prometheus_client
            import prometheus_client.core
        except ImportError:
            raise NoClient from None
        self._client: Any = prometheus_client
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(self)
        self._job: LiveJob | None = None
        self._state = RunState.MOVES
        self._file = None if (address := _ADDRESS.fullmatch(target)) else Path(target)
        self._server: Any = None
        self._due = 0.0
        if address:
            host = address["host"].strip("[]") or "0.0.0.0"
            self._server, _ = prometheus_client.start_http_server(int(address["port"]), host, self._registry)
        else:
            self._write()

    @property
    def port(self) -> int:
        """That is listened to."""
        return int(self._server.server_port)

    def take(self, job: LiveJob, state: RunState) -> None:
        """The job is like this now."""
        self._job, self._state = job, state
        if self._file and time.monotonic() >= self._due:
            self._write()

    def close(self) -> None:
        """Write the last values, and listen no more."""
        if self._file:
            self._write()
        if self._server:
            self._server.shutdown()
            self._server.server_close()

    def _write(self) -> None:
        self._due = time.monotonic() + FILE_SECONDS
        self._client.write_to_textfile(str(self._file), self._registry)

    def collect(self) -> Iterator[Any]:
        """The families of metrics."""
        core, job = self._client.core, self._job
        state = core.GaugeMetricFamily(
            "ddpdoctor_state", "1 for how ddpdoctor judges the job.", labels=["state"]
        )
        for one in RunState:
            state.add_metric([one.value], float(one is self._state))
        yield state
        if job is None:
            return
        yield core.GaugeMetricFamily("ddpdoctor_ranks", "Ranks that have started.", len(job.ranks))
        yield core.GaugeMetricFamily("ddpdoctor_world_size", "Ranks of the job.", job.world_size)
        yield core.CounterMetricFamily("ddpdoctor_restarts", "Restarts by the launcher.", job.restarts)
        if job.save:
            yield core.GaugeMetricFamily(
                "ddpdoctor_checkpoint_age_seconds", "Since the last checkpoint.", job.save_age
            )
        drifts = core.GaugeMetricFamily(
            "ddpdoctor_drift_step", "The step since which this is worse than before.", labels=["of"]
        )
        for drift in job.drifts:
            drifts.add_metric([drift.kind.value], drift.step)
        yield drifts
        labels = ["rank", "host"]
        steps = core.CounterMetricFamily(
            "ddpdoctor_steps", "Training steps that the rank ended.", labels=labels
        )
        slowest = core.GaugeMetricFamily(
            "ddpdoctor_slowest",
            "1 for a rank that works clearly longer in a step than the others.",
            labels=labels,
        )
        for rank in job.ranks:
            steps.add_metric([str(rank.rank), rank.host], rank.steps)
            slowest.add_metric([str(rank.rank), rank.host], float(rank is job.slowest))
        yield from (steps, slowest)
        for name, text, value_of in _OF_A_RANK:
            family = core.GaugeMetricFamily(f"ddpdoctor_{name}", text, labels=labels)
            for rank in job.ranks:
                if (value := value_of(rank)) is not None:
                    family.add_metric([str(rank.rank), rank.host], value)
            yield family
