"""A running job as metrics of Prometheus: an endpoint that is scraped, or a file for the node exporter's collector."""

import errno
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ddpdoctor.live.job import LiveJob
from ddpdoctor.nodes.agreement import RunState

FILE_SECONDS = 10.0
"""Between two writes of the file."""
_OF_A_RANK = {
    "steps": ("steps", "Training steps that the rank ended."),
    "step_seconds": ("step_seconds", "Seconds from the end of a training step to that of the next."),
    "work_seconds": ("work_seconds", "Seconds of a training step that the rank itself works."),
    "data_wait_ratio": ("data_share", "Share of a training step that the rank waits for batches."),
    "rank_wait_ratio": ("wait_share", "Share of a training step that the rank waits for others."),
    "memory_bytes": ("memory", "Resident memory of the rank's process."),
    "no_progress_seconds": ("still", "Seconds since the rank last showed progress."),
}
"""The attribute of each metric, and what it is."""
_SLOWEST = "1 for a rank that works clearly longer in a step than the others."
_COUNTERS = ("steps", "restarts")
_Samples = Iterable[tuple[tuple[str, ...], float | None]]
"""Values of a metric, each with those of its labels; None where it is not known."""


class NoClient(ImportError):
    """The client of Prometheus is not installed."""


class Metrics:
    """Publishes a job until it is closed, at ``:9400``, ``9400`` or ``host:9400``, or in a file by its path. Raises
    NoClient where prometheus_client is not installed, OSError where the port or the file cannot be used."""

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
        host, colon, port = target.rpartition(":")
        is_address = "/" not in target and bool(colon or port.isdigit())
        self._file = None if is_address else Path(target)
        self._server: Any = None
        self._due = 0.0
        if is_address:
            if not port.isdigit() or int(port) >= 1 << 16:
                raise OSError(errno.EINVAL, f"{port or 'nothing'} is no port")
            host = host.strip("[]") or "0.0.0.0"
            self._server, _ = prometheus_client.start_http_server(int(port), host, self._registry)
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
        states = (((one.value,), float(one is self._state)) for one in RunState)
        yield self._family("state", "1 for how ddpdoctor judges the job.", states, "state")
        if (job := self._job) is None:
            return
        age = job.save_age if job.save else None
        for name, text, value in (
            ("ranks", "Ranks that have started.", len(job.ranks)),
            ("world_size", "Ranks of the job.", job.world_size),
            ("restarts", "Restarts by the launcher.", job.restarts),
            ("checkpoint_age_seconds", "Since the last checkpoint.", age),
        ):
            if value is not None:
                yield self._family(name, text, [((), value)])
        drifts = (((drift.kind.value,), drift.step) for drift in job.drifts)
        yield self._family("drift_step", "The step since which this is worse than before.", drifts, "of")
        labels, slowest = [(str(rank.rank), rank.host) for rank in job.ranks], job.slowest
        values = {"slowest": (_SLOWEST, [rank is slowest for rank in job.ranks])}
        for name, (attribute, text) in _OF_A_RANK.items():
            values[name] = text, [getattr(rank, attribute) for rank in job.ranks]
        for name, (text, of_ranks) in values.items():
            yield self._family(name, text, zip(labels, of_ranks, strict=True), "rank", "host")

    def _family(self, name: str, text: str, samples: _Samples, *labels: str) -> Any:
        core = self._client.core
        kind = core.CounterMetricFamily if name in _COUNTERS else core.GaugeMetricFamily
        family = kind(f"ddpdoctor_{name}", text, labels=labels)
        for of_labels, value in samples:
            if value is not None:
                family.add_metric(of_labels, float(value))
        return family
