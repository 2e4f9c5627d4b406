"""What a run of the live group leaves in its folder, read into the record that checks get."""

from __future__ import annotations

import re
from pathlib import Path

from ddpdoctor.files import read_json
from ddpdoctor.group import rank_files
from ddpdoctor.group.group_record import Measured, RankRecord
from ddpdoctor.group.rank_state import RankState
from ddpdoctor.job.guarded import ENGINE_LOG
from ddpdoctor.logs import nccl_output
from ddpdoctor.model import Evidence

LOG_LINES = 10
"""Of each process: its last words, not its life."""
_NOISE = re.compile(
    r"\.py:\d+: UserWarning: Failed to initialize NumPy|_conversion_method_template|OMP_NUM_THREADS|\*{20}"
    r"|^[\s^~]*$|run\.py:\d+\] $|torch/distributed/elastic/|torch/multiprocessing/spawn"
)
"""What torch writes in every healthy run, and the launcher's echo of what the ranks say themselves."""


def log_lines(folder: Path) -> list[str]:
    """The last lines of the engine and of each rank, without the noise."""
    last: list[str] = []
    for path in [folder / ENGINE_LOG, *sorted((folder / "output").rglob("stderr.log"))]:
        if path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            lines = [line for line in text.splitlines() if not _NOISE.search(line)]
            last += lines[-LOG_LINES:]
    return last


def last_words(folder: Path) -> str:
    """The last line of all, or an empty text."""
    return next(iter(reversed(log_lines(folder))), "")


def rank_records(ranks: list[RankState], folder: Path) -> tuple[RankRecord, ...]:
    """The ranks of this host, and of the others where the group gathered them."""
    ended = read_json(folder / rank_files.ENDED) or {"exit_codes": {}}
    here = [rank.record(ended["exit_codes"].get(str(rank.pid))) for rank in ranks]
    ours = {rank.rank for rank in ranks}
    everything = read_json(folder / rank_files.EVERYTHING) or []
    elsewhere = [_remote(rank, values) for rank, values in enumerate(everything) if rank not in ours]
    return tuple(sorted([*here, *elsewhere], key=lambda record: record.rank))


def _remote(rank: int, gathered: dict[str, object]) -> RankRecord:
    values = gathered["measured"]
    assert isinstance(values, dict)
    measured = {name: Measured(value) for name, value in values.items()}
    return RankRecord(rank, host=str(gathered["host"]), measured=measured, joined=True, finished=True)


def nccl_evidence(ranks: list[RankState], folder: Path) -> tuple[Evidence, ...]:
    """What NCCL_DEBUG said, by rank; the file of a rank has its pid in its name."""
    facts = {}
    for rank in ranks:
        for path in folder.glob(f"nccl.*.{rank.pid}.log"):
            facts[rank.rank] = nccl_output.parse(path.read_text(encoding="utf-8", errors="replace"))
    return nccl_output.as_evidence(facts)
