"""Runs as their folders tell of them.

What they hold may be cut off in the middle of a line, since runs are killed, and may come from anywhere: sizes are
bounded, every value's type is looked at, and what cannot be read is counted, never an error.
"""

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from ddpdoctor.files import write_whole
from ddpdoctor.recorder.events.decode import Malformed, from_plain
from ddpdoctor.text import plural, size


@dataclass(frozen=True)
class Point:
    """A line of the metrics: a checkpoint that was saved, where it says no more."""

    step: int


@dataclass(frozen=True)
class Step(Point):
    """A step that was logged; None where its line has no such number."""

    epoch: int | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    samples: float | None = None
    """Of all ranks, since the run began."""
    samples_per_second: float | None = None
    """Of all ranks."""
    seconds: float | None = None
    """That the steps of this line took."""
    memory_bytes: float | None = None


@dataclass(frozen=True)
class Evaluation(Point):
    """An evaluation that was logged."""

    evaluation_loss: float | None = None
    evaluation_accuracy: float | None = None


@dataclass(frozen=True)
class Description:
    """What run.json says."""

    name: str = ""
    """That its configuration gives it."""
    status: str = "unknown"
    started: str | None = None
    finished: str | None = None
    command: tuple[str, ...] = ()
    world_size: int | None = None
    device: str = ""
    backend: str = ""
    torch: str = ""
    steps: int | None = None
    """That were planned."""
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One run."""

    folder: Path
    name: str
    """Of its folder, by which commands take it."""
    described: Description = Description()
    status: str = "unknown"
    """What it says of itself, but one that was killed could not say so."""
    steps: tuple[Step, ...] = ()
    """In order; of a step that was made again after a resume, the last."""
    evaluations: tuple[Evaluation, ...] = ()
    checkpoints: tuple[int, ...] = ()
    """The steps after which one was saved."""
    problems: tuple[str, ...] = ()
    """What could not be read."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Its settings."""
        return self.described.config

    @property
    def started(self) -> datetime | None:
        return _time(self.described.started)

    @property
    def finished(self) -> datetime | None:
        return _time(self.described.finished)

    def series(self, metric: str) -> list[tuple[int, float]]:
        """The values of one metric by step."""
        points = self.evaluations if metric.startswith("evaluation") else self.steps
        pairs = ((point.step, getattr(point, metric)) for point in points)
        return [(step, value) for step, value in pairs if value is not None]


RUN, METRICS = "run.json", "metrics.jsonl"
LONGEST_LINE = 1 << 16
"""Bytes; a line of ours has 300."""
LARGEST_RUN = 4 << 20
LARGEST_METRICS = 256 << 20
"""Bytes that are read of it: a million steps."""
STALE_SECONDS = 600.0
"""After which a run that says it is running, and writes nothing, is not believed."""
LARGEST_NUMBER, _MOST_STEPS = 1e300, 1 << 53
"""Larger ones are no measurements, and drawing them overflows."""
_Point = TypeVar("_Point", bound=Point)
_KINDS: Mapping[str, type[Point]] = {"evaluation": Evaluation, "checkpoint": Point}


def is_run(folder: Path) -> bool:
    """Whether a run left something here."""
    return any(_is_file(folder / name) for name in (RUN, METRICS))


def find_runs(folder: Path) -> list[Path]:
    """The runs in a folder, oldest first; the folder itself where it is one."""
    if is_run(folder):
        return [folder]
    try:
        inside = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []
    return sorted(filter(is_run, inside), key=lambda path: path.name)


def read_run(folder: Path, now: float | None = None) -> Run:
    """Read one run, as far as it goes, at a time in seconds since the epoch; at present where none is given."""
    problems: list[str] = []
    described = _read_description(folder / RUN, problems)
    points: dict[type, list[Any]] = {Step: [], Evaluation: [], Point: []}
    broken = 0
    for line in _lines(folder / METRICS, problems):
        try:
            point = _point(line)
        except (ValueError, ArithmeticError, RecursionError, TypeError, AttributeError):
            broken += 1
        else:
            _append(points[type(point)], point)
    if broken:
        problems.append(f"{plural(broken, 'line')} of {METRICS} cannot be read")
    return Run(
        folder,
        folder.resolve().name,
        described,
        _status(folder, described.status, time.time() if now is None else now),
        tuple(points[Step]),
        tuple(points[Evaluation]),
        tuple(saved.step for saved in points[Point]),
        tuple(problems),
    )


def _read_description(path: Path, problems: list[str]) -> Description:
    if not _is_file(path):
        problems.append(f"{RUN} is missing")
        return Description()
    try:
        with path.open("rb") as file:
            return from_plain(Description, json.loads(file.read(LARGEST_RUN)))
    except (ValueError, RecursionError):
        problems.append(f"{RUN} cannot be read")
        return Description()


def _point(line: bytes) -> Point:
    """What a line tells; else ValueError, ArithmeticError, RecursionError, TypeError or AttributeError is raised."""
    plain = json.loads(line)
    point = from_plain(_KINDS.get(plain.get("kind"), Step), plain)
    numbers = [float(value) for value in asdict(point).values() if value is not None]
    if not 0 <= point.step < _MOST_STEPS or any(LARGEST_NUMBER < abs(it) < float("inf") for it in numbers):
        raise Malformed("a number is out of range")
    return point


def _append(points: list[_Point], point: _Point) -> None:
    """Add a point. A step that comes again was made again, after a resume: what followed its first time is void."""
    while points and points[-1].step >= point.step:
        points.pop()
    points.append(point)


def _lines(path: Path, problems: list[str]) -> Iterator[bytes]:
    if not _is_file(path):
        return
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            if not line.endswith(b"\n"):
                while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
            if line.strip():
                yield line
            if file.tell() > LARGEST_METRICS:
                problems.append(f"{METRICS} has more than {size(LARGEST_METRICS)}; the rest is not read")
                return


def _time(text: str | None) -> datetime | None:
    """A point in time; one that tells no offset is taken for UTC."""
    try:
        parsed = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def _status(folder: Path, status: str, now: float) -> str:
    if status != "running":
        return status
    written = [(folder / name).stat().st_mtime for name in (RUN, METRICS) if _is_file(folder / name)]
    return status if now - max(written, default=0.0) < STALE_SECONDS else "unfinished"


def _is_file(path: Path) -> bool:
    """Whether it is a plain file; a pipe would keep us waiting."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def note_end(folder: Path, status: str) -> None:
    """Let it say how it ended, if it has begun and could not say so: its processes are gone."""
    path = folder / RUN
    with suppress(OSError, ValueError):
        if read_run(folder).status == "running":
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            description = {**json.loads(path.read_text()), "status": status, "finished": now}
            write_whole(path, json.dumps(description, indent=2) + "\n")
