"""What a rank of a benchmark measures, as a measurement of the live group."""

from __future__ import annotations

from typing import Any

import torch

from ddpdoctor.bench import collectives, steps
from ddpdoctor.bench.setting import DEFAULT_BUCKET_MB, SETTING, Setting
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
    context.step("weak scaling")
    rows["weak"] = timer.time(setting.batch_size, DEFAULT_BUCKET_MB, apart=context.world_size > 1)
    strong = setting.strong_batch(context.world_size)
    if strong != setting.batch_size:
        context.step("strong scaling")
        rows["strong"] = timer.time(strong, DEFAULT_BUCKET_MB)
    if context.world_size == setting.nproc > 1:
        rows["buckets"] = {}
        for megabytes in setting.buckets:
            if megabytes != DEFAULT_BUCKET_MB:
                context.step(f"buckets of {megabytes:g} MiB")
                rows["buckets"][f"{megabytes:g}"] = timer.time(setting.batch_size, megabytes)
        rows["collectives"] = collectives.measure(setting, context.device, context.step)
    return rows
