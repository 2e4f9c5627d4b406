"""What a rank of a benchmark measures, as a measurement of the live group."""

from __future__ import annotations

from typing import Any

import torch

from ddpdoctor.bench import collectives, steps
from ddpdoctor.bench.setting import SETTING, Setting
from ddpdoctor.files import read_json
from ddpdoctor.group.context import Context
from ddpdoctor.recorder.events.decode import from_plain

SECONDS = float("inf")


def measure(context: Context) -> dict[str, Any]:
    """Seconds of every step and of every call of a collective."""
    setting = from_plain(Setting, read_json(context.folder / SETTING))
    torch.set_num_threads(setting.threads)
    timer = steps.Timer(setting, context.device)
    rows: dict[str, Any] = {"parameters": timer.parameters, "gradient_bytes": timer.gradient_bytes}
    context.step("training steps")
    rows["steps"] = timer.time()
    if context.world_size == setting.nproc > 1:
        rows["collectives"] = collectives.measure(setting, context.device, context.step)
    return rows
