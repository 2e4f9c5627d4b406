"""``ddpdoctor top``: a running job on one screen."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import TopOptions
from ddpdoctor.cli.report_output import write_out
from ddpdoctor.cli.run_folder import kept_folders
from ddpdoctor.job.command import RECORD
from ddpdoctor.job.job_folder import read_job, working_directory
from ddpdoctor.job.record_watch import Watch
from ddpdoctor.live.job import LiveJob, LiveRanks, State, sentence
from ddpdoctor.redact import quote
from ddpdoctor.text import quote_command, ranks_phrase

_SHARE_OF_A_CPU = 0.019
"""That looking may take: a large job is looked at less often."""
_WIDTH = 160
"""Of a screen that goes into a pipe."""
_LINE_SECONDS = 10.0
"""Between two lines where there is no screen."""


def run_top(options: TopOptions) -> int:
    """Show the job until it ends, and return the exit status; UsageError where there is no job to show."""
    folder = _folder(options.run)
    watch = Watch(folder / RECORD)
    ranks, title = LiveRanks(watch), _title(folder)

    def look() -> LiveJob:
        watch.look()
        return ranks.now()

    if options.once:
        look()
        time.sleep(options.every or 1.0)
        return _print_once(look(), title)
    if sys.stdout.isatty():
        return _show(look, title, options.every or 1.0)
    return _print_lines(look, options.every or _LINE_SECONDS)


def _print_once(job: LiveJob, title: str) -> int:
    from rich.console import Console

    from ddpdoctor.live.screen import screen

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    console.print(screen(job, title, height=10_000))
    return 0


def _show(look: Callable[[], LiveJob], title: str, every: float) -> int:
    from rich.console import Console
    from rich.live import Live

    from ddpdoctor.live.screen import screen

    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        job, began = look(), time.process_time()  # the first look takes three times as long as the others
        while not job.ended:
            live.update(screen(job, title, console.height), refresh=True)
            time.sleep(pause(time.process_time() - began, every))
            began, job = time.process_time(), look()
    write_out(_end(job))
    return 0


def pause(took: float, every: float) -> float:
    """Seconds until the next look, where one took so many seconds of a CPU."""
    return max(every, took / _SHARE_OF_A_CPU)


def _print_lines(look: Callable[[], LiveJob], every: float) -> int:
    while not (job := look()).ended:
        write_out(f"{time.strftime('%H:%M:%S')}  {sentence(job)}\n")
        time.sleep(every)
    write_out(_end(job))
    return 0


def _end(job: LiveJob) -> str:
    failed = [rank.rank for rank in job.ranks if rank.state is State.FAILED]
    return f"the job has ended{': ' + ranks_phrase(failed) + ' failed' if failed else ''}\n"


def _folder(run: str | None) -> Path:
    """The folder of the job: of a run folder; or of the youngest run on this host, rather one of this directory."""
    if run is not None:
        candidates = [Path(run), *sorted(Path(run).glob("*"))]
        found = [path for path in candidates if (path / RECORD).is_dir()]
        if not found:
            raise UsageError(f"{quote(run)} is not the folder of a run: it has no records")
        return found[0]
    running = [kept.path for kept in reversed(kept_folders()) if kept.in_use]
    jobs = [path for folder in running for path in folder.glob("*") if (path / RECORD).is_dir()]
    if not jobs:
        raise UsageError(
            "no job runs under ddpdoctor on this host; start it with `ddpdoctor watch -- torchrun ...`, or name the "
            "folder of a run"
        )
    # Of those the first, which is the youngest.
    return min(jobs, key=lambda job: working_directory(job) != Path.cwd())


def _title(folder: Path) -> str:
    known = read_job(folder)
    return quote_command(known[0].words) if known and known[0].words else str(folder)
