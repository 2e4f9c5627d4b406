"""What torchrun leaves of its ranks: their output, their exceptions, and how it says that they ended."""

import re
from collections.abc import Callable
from pathlib import Path

from ddpdoctor.blame.frames import Failure
from ddpdoctor.files import read_json
from ddpdoctor.job.output_forwarding import Stream
from ddpdoctor.launch import Launch

LOGS = "torchrun"
"""The folder, inside a job's, in which it keeps them."""
OUT, ERR = "stdout.log", "stderr.log"
_EXIT_CODE = re.compile(r"rank +: (?P<rank>\d+) \(local_rank: \d+\)\s+exitcode +: (?P<code>-?\d+) ")
"""How its summary tells the exit status of a rank that failed."""


def rank_folders(folder: Path, launch: Launch) -> list[tuple[int, Path]]:
    """The ranks of this host with what it kept of each; of a rank that was started anew, one for each start."""
    folders = sorted((folder / LOGS).glob("*/attempt_*/*"))
    local = [(int(folder.name), folder) for folder in folders if folder.name.isdigit()]
    return [(launch.ranks[rank], folder) for rank, folder in local if rank < launch.nproc]


def streams(folder: Path, launch: Launch, is_labelled: Callable[[int], bool]) -> list[Stream]:
    """The files that hold the ranks' output, of which some ranks get a label."""
    streams = []
    for rank, path in rank_folders(folder, launch):
        label = f"[rank {rank}] " if is_labelled(rank) else ""
        streams += [Stream(path / OUT, False, label), Stream(path / ERR, True, label)]
    return streams


def exit_codes(summary: str, launch: Launch) -> dict[int, int]:
    """The exit status of each rank that failed by itself, its root cause first; negative for a signal."""
    codes = [(int(match["rank"]), int(match["code"])) for match in _EXIT_CODE.finditer(summary)]
    if launch.imagined is not None:  # torchrun knows of the real ones only
        codes = [(launch.ranks[process], code) for process, code in codes]
    return dict(reversed(codes))  # the root cause stands last


def recorded_failure(path: Path) -> Failure | None:
    """The exception that torch's ``record`` wrote into a rank's folder; None where there is none."""
    file = path / "error.json"
    try:
        values = read_json(file)["message"]
        kind, _, message = values["message"].partition(": ")
        # Its own time is in whole seconds, which tie.
        return Failure(kind, message, values["extraInfo"].get("py_callstack", ""), file.stat().st_mtime)
    except (AttributeError, KeyError, TypeError, OSError):
        return None
