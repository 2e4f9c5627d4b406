"""``ddpdoctor hang``: who waits for whom in a job that is stuck now, or was when somebody kept what it showed."""

import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ddpdoctor.blame.hang_snapshot import HangSnapshot
from ddpdoctor.blame.liveness import snapshot_state
from ddpdoctor.cli.dumps import snapshot_of, source_of, split_inputs
from ddpdoctor.cli.errors import CANNOT_EXAMINE, UsageError
from ddpdoctor.cli.hang_report import HangSource, report_of
from ddpdoctor.cli.options import HangOptions
from ddpdoctor.cli.page_sections import with_sections
from ddpdoctor.cli.report_output import ReportOutput, writing
from ddpdoctor.files import first_written
from ddpdoctor.hang import attach, snapshots
from ddpdoctor.hang.flight.folder import read_folder
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.hang.jobs import Job, NoJob, script_of
from ddpdoctor.job.job_folder import read_job, read_trace
from ddpdoctor.model import Report
from ddpdoctor.progress import Progress
from ddpdoctor.redact import mask_files, quote
from ddpdoctor.text import quote_command, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.live import live_trace, read_records
from ddpdoctor.trace.reader import Recorded, read_run


def run_hang(options: HangOptions) -> int:
    """Look, judge, write the report, return the exit status; UsageError where there is nothing it may look at."""
    started, output = time.monotonic(), ReportOutput(options)
    if options.dump is not None:  # one that cannot be written is refused before anything else is done
        with writing(options.dump, "--dump"):
            _staging(options.dump).rmdir()
    with Progress(quiet=options.quiet) as progress:
        if (source := _look(options, progress)) is None:
            return CANNOT_EXAMINE
        report = report_of(source, started)
        tell = partial(print, file=sys.stderr)
        report = with_sections(report, source.trace, options, tell)
        if options.dump is not None:
            _keep(source, options.dump)
    output.write(report)
    return report.exit_status


def examine_job(options: HangOptions) -> Report:
    """Look and judge, without progress; UsageError where there is nothing to look at, or no one job."""
    started = time.monotonic()
    if (source := _look(options, Progress(quiet=True))) is None:
        raise UsageError("several jobs run here; give a process id of one of them")
    return with_sections(report_of(source, started), source.trace, options, lambda text: None)


def _look(options: HangOptions, progress: Progress) -> HangSource | None:
    subjects = options.subjects or []
    pids = [int(subject) for subject in subjects if subject.isdecimal() and len(subject) < 10]
    folders = [Path(subject) for subject in subjects if not subject.isdecimal()]
    if options.flight_recorder is not None:
        if subjects:
            raise UsageError("--flight-recorder takes its folder alone, without process ids or other folders")
        return _by_flight(Path(options.flight_recorder))
    if folders and pids:
        raise UsageError("give process ids or folders, not both")
    if folders:
        return _by_folders(folders)
    return _live(pids, progress)


def _by_flight(folder: Path) -> HangSource:
    if not folder.parent.is_dir():
        raise UsageError(f"--flight-recorder {quote(str(folder))} does not exist")
    try:
        dumps = read_folder(folder)
    except Refused as why:
        raise UsageError(f"--flight-recorder {quote(str(folder))}: {why}") from None
    snapshot = HangSnapshot(flight=dumps.ranks, unseen=dumps.left_out)
    return HangSource(Trace(ranks=(), snapshot=snapshot), since=first_written([folder]))


def _by_folders(folders: Sequence[Path]) -> HangSource:
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{quote(str(folder))} is neither a folder nor a process id")
    job = read_job(folders[0]) if len(folders) == 1 and not snapshots.is_kept(folders[0]) else None
    if job is not None:
        trace = read_trace(folders[0])
        if trace.snapshot is None:
            raise UsageError(f"{quote(str(folders[0]))} holds a run that did not hang")
        return HangSource(trace, command=job[0].words, since=first_written(folders))
    given = split_inputs([str(folder) for folder in folders])
    if given.stacks and not any(map(snapshots.is_kept, folders)):
        snapshot, _ = snapshot_of(given.dumps, given.stacks)
        return replace(source_of(snapshot), since=first_written(folders))
    try:
        snapshot = snapshots.read(*folders)
        trace = live_trace(snapshot, read_records(*folders))
        state, script = snapshot_state(snapshot), _script(snapshot)
        return HangSource(trace, state, script, since=first_written(folders))
    except Refused as why:
        raise UsageError(f"{', '.join(quote(str(folder)) for folder in folders)}: {why}") from None


def _script(snapshot: HangSnapshot) -> tuple[str, ...]:
    """What the ranks ran; empty where that is not told, or was too long to be kept as a whole."""
    command = next((process.command for process in snapshot.ranks.values()), "")
    try:
        return script_of(tuple(shlex.split(command)))
    except ValueError:
        return ()


def _live(pids: Sequence[int], progress: Progress) -> HangSource | None:
    progress.stage("looking for ranks")
    try:
        jobs = attach.find(pids)
        if len(jobs) > 1:
            progress.hide()
            print(_choice(jobs), file=sys.stderr)
            return None
        if not jobs:
            raise UsageError(
                "no process on this host has RANK in its environment; pass the process id of the launcher"
            )
        snapshot = attach.look_at(jobs[0], progress.stage)
    except NoJob as why:
        raise UsageError(str(why)) from None
    records = jobs[0].records
    recorded = read_run(records) if records and records.is_dir() else Recorded()
    return HangSource(
        live_trace(snapshot, recorded),
        snapshot_state(snapshot),
        script_of(jobs[0].command),
        records,
        time.time() - jobs[0].age,
    )


def _choice(jobs: Sequence[Job]) -> str:
    lines = [f"ddpdoctor: error: {len(jobs)} jobs run here; give a process id of one of them:"]
    for job in jobs:
        ranks = [rank for rank in job.ranks.values() if rank is not None]
        lines.append(
            f"  ddpdoctor hang {min(job.ranks)}    # {ranks_phrase(ranks)}: {quote_command(script_of(job.command))}"
        )
    return "\n".join(lines)


def _keep(source: HangSource, folder: str) -> None:
    """Keep what was looked at, for another time or host; UsageError where the folder cannot be written."""
    with writing(folder, "--dump"):
        staging = _staging(folder)
        snapshots.write(source.trace.snapshot or HangSnapshot(), staging, source.records)
        mask_files(staging, os.environ)
        snapshots.move_into(staging, Path(folder))


def _staging(folder: str) -> Path:
    """A new folder inside it, in which everything is written before it is moved; OSError where it cannot be made."""
    staging = Path(folder, f".{os.getpid()}.part")
    staging.mkdir(parents=True, exist_ok=True)
    return staging
