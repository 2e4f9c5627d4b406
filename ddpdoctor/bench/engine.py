"""The process that imports torch once, and forks the ranks of one number after the other.

It is started as ``python -m ddpdoctor.bench.engine FOLDER``, and never touches CUDA: a forked child could not use
it any more.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

from ddpdoctor.bench.setting import Setting
from ddpdoctor.group import files

SETTING = "setting.json"
DONE = "done.json"
_LOOK_SECONDS = 0.02
_VICTIM_SECONDS = 2.0
"""After a rank failed: for the others to say what they saw."""


def main(folder: Path) -> int:
    """Measure one number of ranks after the other; 1 where a rank failed."""
    tempfile.tempdir = str(folder)
    setting = Setting.from_json(files.read_json(folder / SETTING))
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
    files.write_json(folder / DONE, {"torch": str(torch.__version__)})
    return 0


def _note_signals(folder: Path, ranks: int, statuses: list[int | None]) -> None:
    """What a rank that a signal ended could not say."""
    from ddpdoctor.bench import worker

    for rank, status in enumerate(statuses):
        path = worker.failure_file(folder, ranks, rank)
        if status is not None and status < 0 and not path.exists():
            # Rank 0 tells of all what they do: "2 ranks: weak scaling".
            doing = str(files.read_json(folder / worker.PROGRESS) or "").partition(": ")[2]
            files.write_json(path, {"doing": doing, "error": f"signal {-status} ended it"})


if __name__ == "__main__":
    status = main(Path(sys.argv[1]))
    sys.stderr.flush()
    # The ranks that still wait for one that failed are the guard's to end.
    os._exit(status)
