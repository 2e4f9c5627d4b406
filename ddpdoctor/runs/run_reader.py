"""Runs as their folders tell of them.

What they hold may be cut off in the middle of a line, since runs are killed, and may come from anywhere: sizes are
bounded, every value's type is looked at, and what cannot be read is counted, never an error.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ddpdoctor.files import GrowingFile, read_json, write_whole
from ddpdoctor.text import plural, size


class Step(NamedTuple):
    """A step that was logged; None where its line has no such number."""

    step: int
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


class Evaluation(NamedTuple):
    """An evaluation that was logged."""

    step: int
    evaluation_loss: float | None = None
    evaluation_accuracy: float | None = None


@dataclass(frozen=True)
class Run:
    """One run."""

    folder: Path
    name: str
    """Of its folder, by which commands take it."""
    title: str = ""
    """The name that its configuration gives it."""
    status: str = "unknown"
    started: datetime | None = None
    finished: datetime | None = None
    command: tuple[str, ...] = ()
    world_size: int | None = None
    device: str = ""
    backend: str = ""
    torch: str = ""
    planned_steps: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    """In order; of a step that was made again after a resume, the last."""
    evaluations: tuple[Evaluation, ...] = ()
    checkpoints: tuple[int, ...] = ()
    """The steps after which one was saved."""
    problems: tuple[str, ...] = ()
    """What could not be read."""

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
LARGEST_NUMBER = 1e300
"""Larger ones are no measurements, and drawing them overflows."""
DIED = "died"
"""Of a run whose process is gone without having said how it ended."""
_Point = TypeVar("_Point", Step, Evaluation)


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
    return sorted(
        (folder_inside for folder_inside in inside if is_run(folder_inside)),
        key=lambda folder_inside: folder_inside.name,
    )


def read_run(folder: Path, now: float | None = None) -> Run:
    """Read one run, as far as it goes.

    Args:
        now: seconds since the epoch; the present where none is given.
    """
    problems: list[str] = []
    description = _read_description(folder / RUN, problems)
    steps, evaluations, checkpoints = _read_metrics(folder / METRICS, problems)
    config = description.get("config")
    return Run(
        folder=folder,
        name=folder.resolve().name,
        title=_text(description.get("name")),
        status=_status(folder, description, time.time() if now is None else now),
        started=_time(description.get("started")),
        finished=_time(description.get("finished")),
        command=_words(description.get("command")),
        world_size=_count(description.get("world_size")),
        device=_text(description.get("device")),
        backend=_text(description.get("backend")),
        torch=_text(description.get("torch")),
        planned_steps=_count(description.get("steps")),
        config=config if isinstance(config, dict) else {},
        steps=steps,
        evaluations=evaluations,
        checkpoints=checkpoints,
        problems=tuple(problems),
    )


def _read_description(path: Path, problems: list[str]) -> Mapping[str, Any]:
    if not _is_file(path):
        problems.append(f"{RUN} is missing")
        return {}
    with path.open("rb") as file:
        text = file.read(LARGEST_RUN + 1)
    value = _parse(text) if len(text) <= LARGEST_RUN else None
    if not isinstance(value, dict):
        problems.append(f"{RUN} cannot be read")
        return {}
    return value


def _read_metrics(
    path: Path, problems: list[str]
) -> tuple[tuple[Step, ...], tuple[Evaluation, ...], tuple[int, ...]]:
    steps: list[Step] = []
    evaluations: list[Evaluation] = []
    checkpoints: list[int] = []
    broken = 0
    for line in _lines(path, problems):
        value = _parse(line)
        step = _count(value.get("step")) if isinstance(value, dict) else None
        if not isinstance(value, dict) or step is None:
            broken += 1
        elif value.get("kind") == "evaluation":
            _append(evaluations, Evaluation(step, *_numbers(value, Evaluation._fields[1:])))
        elif value.get("kind") == "checkpoint":
            checkpoints.append(step)
        else:
            _append(steps, _step(step, value))
    if broken:
        problems.append(f"{plural(broken, 'line')} of {METRICS} cannot be read")
    return tuple(steps), tuple(evaluations), tuple(dict.fromkeys(checkpoints))


def parse_step(line: bytes) -> Step | None:
    """The step that a line of metrics tells of; None where it tells of none."""
    value = _parse(line)
    if not isinstance(value, dict) or value.get("kind", "step") != "step":
        return None
    step = _count(value.get("step"))
    return None if step is None else _step(step, value)


def _step(step: int, value: Mapping[str, Any]) -> Step:
    return Step(step, _count(value.get("epoch")), *_numbers(value, Step._fields[2:]))


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
                _skip_line(file)
            if line.strip():
                yield line
            if file.tell() > LARGEST_METRICS:
                problems.append(f"{METRICS} has more than {size(LARGEST_METRICS)}; the rest is not read")
                return


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _numbers(value: Mapping[str, Any], names: tuple[str, ...]) -> list[float | None]:
    return [_number(value.get(name)) for name in names]


def _number(value: Any) -> float | None:
    """A measurement; NaN and infinity are, where a loss diverges."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return None if LARGEST_NUMBER < abs(number) < float("inf") else number


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if is_count else None


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _words(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_text(value),)
    return tuple(_text(word) for word in value[:100]) if isinstance(value, list) else ()


def _time(value: Any) -> datetime | None:
    """A point in time; one that tells no offset is taken for UTC."""
    try:
        parsed = datetime.fromisoformat(_text(value).replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def _status(folder: Path, description: Mapping[str, Any], now: float) -> str:
    """What it says of itself, but one that was killed could not say so."""
    status = _text(description.get("status")) or "unknown"
    if status != "running":
        return status
    if description.get("machine") and description["machine"] == _machine():
        held = _is_held(folder)
        if held is not None:
            return status if held else DIED
    written = [(folder / name).stat().st_mtime for name in (RUN, METRICS) if _is_file(folder / name)]
    return status if now - max(written, default=0.0) < STALE_SECONDS else "unfinished"


def _machine() -> str:
    """As the trainer writes it down: a run of another machine, or before the last boot, cannot be looked at here."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _is_held(folder: Path) -> bool | None:
    """Whether a process has the folder for itself, as the trainer has while it lives; None where that is not told."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(opened)
    return False


def _is_file(path: Path) -> bool:
    """Whether it is a plain file; a pipe would keep us waiting."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


# -- while a run writes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Position:
    """Where a run is."""

    step: Step
    """The last one that was logged."""
    total: int | None
    """Steps that are planned; None where nobody knows."""
    seconds_left: float | None
    """Judged by the speed so far; None at the first step."""


class Follower:
    """Follows one run folder.

    Args:
        folder: need not be there yet.
        clock: seconds that pass.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._metrics = GrowingFile(
            folder / METRICS, skip=True
        )  # what an earlier part of the run wrote is past
        self._first: tuple[int, float] | None = None
        self._total: int | None = None

    def look(self) -> Position | None:
        """Where the run is now; None where it logged no further step since the last look."""
        step = self._newest()
        if step is None:
            return None
        now = self._clock()
        if self._first is None or step.step <= self._first[0]:
            self._first = (step.step, now)
        if self._total is None:
            self._total = self._planned()
        return Position(step, self._total, self._left(step.step, now))

    def _newest(self) -> Step | None:
        steps = map(parse_step, reversed(self._metrics.new_lines()))
        return next((step for step in steps if step), None)

    def _planned(self) -> int | None:
        run = read_json(self._folder / RUN)
        planned = run.get("steps") if isinstance(run, dict) else None
        return planned if isinstance(planned, int) and planned > 0 else None

    def _left(self, step: int, now: float) -> float | None:
        if self._total is None or self._first is None or step == self._first[0]:
            return None
        begun, then = self._first
        return max(0.0, (self._total - step) * (now - then) / (step - begun))


def note_stopped(folder: Path) -> None:
    """Let it say so, if it has begun, is not over, and no process has it any more."""
    path = folder / RUN
    with suppress(OSError, ValueError):
        if read_run(folder).status == DIED:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            description = {**json.loads(path.read_text()), "status": "stopped", "finished": now}
            write_whole(path, json.dumps(description, indent=2) + "\n")
