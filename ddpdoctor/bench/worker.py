"""One rank of the benchmark: joins, times what it is asked for, and writes what it measured."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ddpdoctor.bench import collectives, steps
from ddpdoctor.bench.setting import DEFAULT_BUCKET_MB, MEASURED, Setting
from ddpdoctor.group.eager import without_compiler
from ddpdoctor.group.rank_files import EventWriter, rank_file
from ddpdoctor.group.worker import DRAIN_SECONDS, describe

TIMEOUT = timedelta(seconds=120)
"""Of a collective. The command ends all of it long before, where time is up."""


def run(setting: Setting, ranks: int, rank: int, folder: Path) -> None:
    """A rank's whole life, in a process that was forked for it; does not return."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    events = EventWriter(rank_file(folder, rank))
    events.write("hello", pid=os.getpid(), host=socket.gethostname())
    try:
        rows = _measure(setting, ranks, rank, folder, lambda text: events.write("step", step=text))
        events.write("done", name=MEASURED, value=rows, seconds=0.0)
        status = 0
    except BaseException as failed:  # noqa: BLE001 - the command tells of it
        traceback.print_exc()
        events.write("failed", **describe(failed))
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # What was measured is written, and a group of gloo that is torn down may abort (see DRAIN_SECONDS).
    os._exit(status)


def _measure(
    setting: Setting, ranks: int, rank: int, folder: Path, doing: Callable[[str], None]
) -> dict[str, Any]:
    torch.set_num_threads(setting.threads)
    device = torch.device("cuda", rank) if setting.backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    doing("joining the group")
    dist.init_process_group(
        setting.backend,
        init_method=f"file://{folder / 'store'}",  # no port that could be taken
        rank=rank,
        world_size=ranks,
        timeout=TIMEOUT,
        device_id=device if device.type == "cuda" else None,
    )
    without_compiler()
    rows = _rows(setting, ranks, device, doing)
    dist.barrier()
    time.sleep(DRAIN_SECONDS)
    return rows


def _rows(setting: Setting, ranks: int, device: torch.device, doing: Callable[[str], None]) -> dict[str, Any]:
    timer = steps.Timer(setting, device)
    rows: dict[str, Any] = {"parameters": timer.parameters, "gradient_bytes": timer.gradient_bytes}
    doing("weak scaling")
    rows["weak"] = timer.time(setting.batch_size, DEFAULT_BUCKET_MB, apart=ranks > 1)
    strong = setting.strong_batch(ranks)
    if strong != setting.batch_size:
        doing("strong scaling")
        rows["strong"] = timer.time(strong, DEFAULT_BUCKET_MB)
    if ranks == setting.nproc and ranks > 1:
        rows["buckets"] = {}
        for megabytes in setting.buckets:
            if megabytes != DEFAULT_BUCKET_MB:
                doing(f"buckets of {megabytes:g} MiB")
                rows["buckets"][f"{megabytes:g}"] = timer.time(setting.batch_size, megabytes)
        rows["collectives"] = collectives.measure(setting, device, doing)
    return rows
