"""Runs a benchmark, one live group for each number of ranks: the command's side. Never imports torch."""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil

from ddpdoctor.bench.results import Results, put_together
from ddpdoctor.bench.setting import MEASURED, SETTING, Setting
from ddpdoctor.files import write_json
from ddpdoctor.group.group_record import GroupRecord, RankRecord
from ddpdoctor.group.group_run import GroupRun
from ddpdoctor.host.system import System
from ddpdoctor.job.guarded import new_run_id
from ddpdoctor.launch import Launch
from ddpdoctor.redact import escape
from ddpdoctor.text import plural

_LOOK_SECONDS = 0.1
"""Between two looks at ranks that are timed: each takes some of a CPU that they may need."""
_BUSY_SECONDS = 0.3
"""For which the machine is looked at before anything is started."""


class BenchFailed(Exception):
    """The ranks did not come to an end; the message says which one did not, and where."""


def run(setting: Setting, cpus: float, seconds: float, stage: Callable[[str], None]) -> Results:
    """Measure within so many seconds, and leave neither a process nor a file; ``stage`` is told what is measured now.
    Raises BenchFailed where a rank failed, or the time is over."""
    folder = Path(tempfile.mkdtemp(prefix="ddpdoctor-bench-"))
    doing = ["importing torch"]

    def tell(text: str) -> None:
        doing.append(text)
        stage(text)

    try:
        busy = psutil.cpu_percent(_BUSY_SECONDS) / 100 * (psutil.cpu_count() or 1)
        deadline = time.monotonic() + seconds
        groups: dict[int, GroupRecord] = {}
        for ranks in setting.ranks:
            groups[ranks] = group = _measure(setting, ranks, folder / str(ranks), deadline, tell)
            if group.out_of_time:
                raise BenchFailed(f"the time limit of {seconds:g} s was reached: {doing[-1]}")
            if group.broken:
                raise BenchFailed(_why(group))
        measured = {ranks: list(group.values(MEASURED).values()) for ranks, group in groups.items()}
        return put_together(setting, measured, cpus, groups[setting.nproc].torch, busy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(
    setting: Setting, ranks: int, folder: Path, deadline: float, tell: Callable[[str], None]
) -> GroupRecord:
    folder.mkdir()
    write_json(folder / SETTING, asdict(setting))
    launch = Launch(nproc=ranks, backend=setting.backend, checkpoint_dir=str(folder))
    group = GroupRun(
        launch, [MEASURED], folder, new_run_id(), System(), [folder.parent], timed_every=_LOOK_SECONDS
    )
    try:
        return group.finish(deadline, tell)
    finally:
        group.stop()


def _why(group: GroupRecord) -> str:
    """What the rank said that failed first."""
    if (first := group.first_to_break()) is None:
        return escape(group.broken or "")
    of_all = plural(group.launch.nproc, "rank")
    return f"rank {first.rank} of {of_all} failed, {first.step or 'joining the group'}: {_reason(first)}"


def _reason(rank: RankRecord) -> str:
    if rank.failure is None:
        return f"signal {-(rank.exit_code or 0)} ended it"
    return escape(f"{rank.failure.type}: {rank.failure.message}".partition("\n")[0])
