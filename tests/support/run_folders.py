"""Run folders as the trainer writes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGUN = "2026-01-03T12:00:00.000+00:00"


def make_run(
    root: Path,
    name: str,
    /,
    *,
    ranks: int = 2,
    speed: float = 100.0,
    steps: int = 20,
    batch_size: int = 8,
    lines: Sequence[Mapping[str, Any]] = (),
    **facts: Any,
) -> Path:
    """A run of this many steps at this many samples a second, then the lines that a test adds."""
    folder = root / name
    folder.mkdir(parents=True)
    config = {
        "data": {"task": "language", "strategy": "sharded", "batch_size": batch_size},
        "model": {"width": 32},
        "train": {"epochs": 2, "precision": "float32"},
        "parallel": {"world_size": ranks},
    }
    described = {
        "name": "trainer",
        "started": BEGUN,
        "finished": "2026-01-03T12:00:30.000+00:00",
        "status": "finished",
        "command": ["trainer.py"],
        "world_size": ranks,
        "device": "cpu",
        "backend": "gloo",
        "torch": "2.13.0",
        "steps": steps,
        "config": config,
        **facts,
    }
    (folder / "run.json").write_text(json.dumps(described))
    written = [*(step_line(step, ranks * batch_size, speed) for step in range(1, steps + 1)), *lines]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    return folder


def step_line(step: int, samples: int = 16, speed: float = 100.0, **values: Any) -> dict[str, Any]:
    """A line of a step."""
    told = {
        "kind": "step",
        "step": step,
        "epoch": (step - 1) // 10,
        "loss": 5.0 / step,
        "lr": 0.01,
        "grad_norm": 1.0,
        "samples": step * samples,
        "samples_per_second": speed,
        "seconds": samples / speed,
        "memory_bytes": 1 << 28,
    }
    return {**told, **values}
