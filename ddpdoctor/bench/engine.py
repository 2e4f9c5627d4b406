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

from ddpdoctor.bench.setting import Setting
from ddpdoctor.files import read_json, write_json
from ddpdoctor.recorder.events.decode import from_plain

SETTING = "setting.json"
DONE = "done.json"
_LOOK_SECONDS = 0.02
_VICTIM_SECONDS = 2.0
"""After a rank failed: for the others to say what they saw."""


def main(folder_name: str) -> None:
    """Measure one number of ranks after the other, and end with 1 where a rank failed."""
    status = _measure(Path(folder_name))
    sys.stderr.flush()
    # The ranks that still wait for one that failed are the guard's to end.
    os._exit(status)


def _measure(folder: Path) -> int:
    tempfile.tempdir = str(folder)
    setting = from_plain(Setting, read_json(folder / SETTING))
    import torch

    from ddpdoctor.bench import worker

    for ranks in setting.ranks:
        fork = get_context("fork")
        started = [
            fork.Process(target=worker.run, args=(setting, ranks, rank, folder)) for rank in range(ranks)
        ]
        for process in started:
            process.start()
        while all(process.exitcode in (None, 0) for process in started):
            if all(process.exitcode == 0 for process in started):
                break
            time.sleep(_LOOK_SECONDS)
        else:
            time.sleep(_VICTIM_SECONDS)
            _note_signals(folder, ranks, [process.exitcode for process in started])
            return 1
    write_json(folder / DONE, {"torch": str(torch.__version__)})
    return 0


def _note_signals(folder: Path, ranks: int, statuses: list[int | None]) -> None:
    """What a rank that a signal ended could not say."""
    from ddpdoctor.bench import worker

    for rank, status in enumerate(statuses):
        path = worker.failure_file(folder, ranks, rank)
        if status is not None and status < 0 and not path.exists():
            # Rank 0 tells of all what they do: "2 ranks: weak scaling".
            doing = str(read_json(folder / worker.PROGRESS) or "").partition(": ")[2]
            write_json(path, {"doing": doing, "error": f"signal {-status} ended it"})
