"""The process that imports torch once, and forks the ranks of one number after the other.

It never touches CUDA: a forked child could not use it any more.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from ddpdoctor.bench.setting import SETTING, Setting
from ddpdoctor.files import read_json, write_json
from ddpdoctor.group import rank_files
from ddpdoctor.recorder.events.decode import from_plain

_LOOK_SECONDS = 0.02
_VICTIM_SECONDS = 2.0
"""After a rank failed: for the others to say what they saw."""


def main(folder_name: str) -> None:
    """Measure one number of ranks after the other, and end with 1 where a rank failed."""
    folder = Path(folder_name)
    tempfile.tempdir = folder_name
    setting = from_plain(Setting, read_json(folder / SETTING))
    import torch

    write_json(folder / rank_files.READY, {"torch": str(torch.__version__)})
    worked = all(_measure(setting, ranks, folder / str(ranks)) for ranks in setting.ranks)
    sys.stderr.flush()
    # The ranks that still wait for one that failed are the guard's to end.
    os._exit(0 if worked else 1)


def _measure(setting: Setting, ranks: int, folder: Path) -> bool:
    """Whether all ranks came to their end."""
    from ddpdoctor.bench import worker

    folder.mkdir()
    fork = get_context("fork")
    started = [fork.Process(target=worker.run, args=(setting, ranks, rank, folder)) for rank in range(ranks)]
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
