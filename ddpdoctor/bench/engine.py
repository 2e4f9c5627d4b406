"""The process that imports torch once and forks the ranks of one number after the other; and the life of a rank.

It never touches CUDA: a forked child could not use it any more.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ddpdoctor.bench import collectives, steps
from ddpdoctor.bench.setting import DEFAULT_BUCKET_MB, MEASURED, SETTING, Setting
from ddpdoctor.files import read_json, write_json
from ddpdoctor.group import rank_files
from ddpdoctor.group.eager import without_compiler
from ddpdoctor.group.worker import DRAIN_SECONDS, describe
from ddpdoctor.recorder.events.decode import from_plain

_LOOK_SECONDS = 0.02
_VICTIM_SECONDS = 2.0
"""After a rank failed: for the others to say what they saw."""
TIMEOUT = timedelta(seconds=120)
"""Of a collective. The command ends all of it long before, where time is up."""


def main(folder_name: str) -> None:
    """Measure one number of ranks after the other, and end with 1 where a rank failed."""
    folder = Path(folder_name)
    tempfile.tempdir = folder_name
    setting = from_plain(Setting, read_json(folder / SETTING))
    write_json(folder / rank_files.READY, {"torch": str(torch.__version__)})
    worked = all(_measure(setting, ranks, folder / str(ranks)) for ranks in setting.ranks)
    sys.stderr.flush()
    # The ranks that still wait for one that failed are the guard's to end.
    os._exit(0 if worked else 1)


def _measure(setting: Setting, ranks: int, folder: Path) -> bool:
    """Whether all ranks came to their end."""
    folder.mkdir()
    fork = get_context("fork")
    started = [fork.Process(target=_be_rank, args=(setting, ranks, rank, folder)) for rank in range(ranks)]
    for process in started:
        process.start()
    while all(process.exitcode in (None, 0) for process in started):
        if all(process.exitcode == 0 for process in started):
            return True
        time.sleep(_LOOK_SECONDS)
    time.sleep(_VICTIM_SECONDS)
    codes = {process.pid: process.exitcode for process in started}
    write_json(folder / rank_files.ENDED, {"exit_codes": codes})
    return False


def _be_rank(setting: Setting, ranks: int, rank: int, folder: Path) -> None:
    """A rank's whole life, in a process that was forked for it; does not return."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    events = rank_files.EventWriter(rank_files.rank_file(folder, rank))
    events.write("hello", pid=os.getpid(), host=socket.gethostname())
    try:
        rows = _measure_on(setting, ranks, rank, folder, lambda text: events.write("step", step=text))
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


def _measure_on(
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
