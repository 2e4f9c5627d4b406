"""What a run amounts to: speed, speed-up against the single process, losses."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from ddpdoctor.runs.run_reader import Run

WARM_UP = 0.1
"""Share of the logged steps that the speed leaves out: the first import, allocate and connect."""


@dataclass(frozen=True)
class Summary:
    """One run in numbers; None where it does not tell."""

    name: str
    title: str
    status: str
    started: str | None
    ranks: int | None
    device: str
    backend: str
    torch: str
    steps: int
    planned_steps: int | None
    epochs: int | None
    samples: float | None
    first_loss: float | None
    last_loss: float | None
    evaluation_loss: float | None
    """The lowest."""
    evaluation_step: int | None
    evaluation_accuracy: float | None
    """Where the evaluation loss was lowest."""
    samples_per_second: float | None
    """Of all ranks: the median of the steps after the first tenth."""
    step_seconds: float | None
    memory_bytes: float | None
    """The most that any logged step had."""
    seconds: float | None
    problems: tuple[str, ...]
    baseline: str | None = None
    """The single-process run that the next two are about."""
    speed_up: float | None = None
    efficiency: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The summary as values of JSON, which has neither NaN nor infinity."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def summarize(run: Run) -> Summary:
    losses = [value for _, value in run.series("loss")]
    speeds = _settled([value for _, value in run.series("samples_per_second")])
    best = _best_evaluation(run)
    return Summary(
        name=run.name,
        title=run.described.name,
        status=run.status,
        started=run.started.isoformat() if run.started else None,
        ranks=run.described.world_size,
        device=run.described.device,
        backend=run.described.backend,
        torch=run.described.torch,
        steps=run.steps[-1].step if run.steps else 0,
        planned_steps=run.described.steps,
        epochs=next((s.epoch + 1 for s in reversed(run.steps) if s.epoch is not None), None),
        samples=next((s.samples for s in reversed(run.steps) if s.samples is not None), None),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        evaluation_loss=best.evaluation_loss if best else None,
        evaluation_step=best.step if best else None,
        evaluation_accuracy=best.evaluation_accuracy if best else None,
        samples_per_second=median(speeds) if speeds else None,
        step_seconds=_step_seconds(run),
        memory_bytes=max((value for _, value in run.series("memory_bytes")), default=None),
        seconds=_seconds(run),
        problems=run.problems,
    )


def summarize_all(
    runs: Sequence[Run], known: Iterable[Run] = (), baseline: Run | None = None
) -> list[Summary]:
    """Several runs, each against the last single-process run, of these or of those that are known, that did the same
    work; or all of them against the baseline, whatever it did."""
    if baseline is not None:
        return [_against(summarize(run), summarize(baseline)) for run in runs]
    alone = [run for run in (*known, *runs) if run.described.world_size == 1]
    return [_against(summarize(run), _baseline(run, alone)) for run in runs]


def _baseline(run: Run, alone: Sequence[Run]) -> Summary | None:
    """The last run of one process with the same model, on the same kind of device."""
    same = (candidate for candidate in reversed(alone) if _work(candidate) == _work(run))
    return next((baseline for baseline in map(summarize, same) if baseline.samples_per_second), None)


def _work(run: Run) -> tuple[object, str]:
    return run.config.get("model"), run.described.device.partition(":")[0]


def _against(summary: Summary, baseline: Summary | None) -> Summary:
    if baseline is None or not baseline.samples_per_second or not summary.samples_per_second:
        return summary
    speed_up = summary.samples_per_second / baseline.samples_per_second
    efficiency = speed_up * (baseline.ranks or 1) / summary.ranks if summary.ranks else None
    return replace(summary, baseline=baseline.name, speed_up=speed_up, efficiency=efficiency)


def _best_evaluation(run: Run) -> Any:
    losses = [(e.evaluation_loss, e) for e in run.evaluations if e.evaluation_loss is not None]
    known = [pair for pair in losses if math.isfinite(pair[0])]
    best = min(known, key=lambda pair: pair[0], default=None)
    return best[1] if best else next(iter(run.evaluations[-1:]), None)


def _settled(values: list[float]) -> list[float]:
    """The values after the warm-up that are a speed."""
    skipped = min(len(values) - 1, math.ceil(len(values) * WARM_UP)) if len(values) > 1 else 0
    return [value for value in values[skipped:] if 0 < value < math.inf]


def _step_seconds(run: Run) -> float | None:
    """Seconds a step, from the samples of a step and the speed; a line may stand for several steps."""
    took = [
        (later.samples - earlier.samples) / (later.step - earlier.step) / later.samples_per_second
        for earlier, later in zip(run.steps, run.steps[1:], strict=False)
        if earlier.samples is not None and later.samples is not None and later.samples_per_second
    ]
    settled = _settled(took)
    return median(settled) if settled else None


def _seconds(run: Run) -> float | None:
    if run.started and run.finished:
        return max(0.0, (run.finished - run.started).total_seconds())
    spans = [value for _, value in run.series("seconds") if 0 <= value < math.inf]
    return sum(spans) if spans else None
