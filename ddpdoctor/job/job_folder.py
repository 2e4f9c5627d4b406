"""What a job left in its folder, as a Trace: read after its end, or again at any later time."""

import math
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ddpdoctor.blame.frames import Failure, is_of_recorder
from ddpdoctor.blame.hang_snapshot import Doing, SampledProcess
from ddpdoctor.files import checksum, read_json, write_json, written_at
from ddpdoctor.hang import snapshots
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.job import torchrun
from ddpdoctor.job.command import RECORD, Job, JobKind
from ddpdoctor.job.torchrun import ERR, OUT
from ddpdoctor.job.written_files import read_written
from ddpdoctor.launch import Launch
from ddpdoctor.program.handlers import cleanups
from ddpdoctor.recorder.events.decode import from_plain
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.trace import LostHost, RankTrace, Shortened, Trace
from ddpdoctor.trace.gloo import forgive
from ddpdoctor.trace.reader import Recorded, read_run
from ddpdoctor.trace.recording import Recording

JOB, ENDING, SOURCES = "job.json", "ending.json", "sources.json"
SNAPSHOT = "standstill"
"""The folder, inside the job's, of what was seen of it when it stood still."""
STOPPED = "its ranks stopped before that"
"""The reason for which a host is lost that the job restarted without."""
_TAIL_BYTES = 64 * 1024
_TAIL_LINES = 30
_RAY_WORKER = re.compile(r"^\[Rank (?P<rank>\d+) Error Snippet\]:$(?P<text>.*?)(?=^\[Rank |\Z)", re.M | re.S)
_RAY_HOST = re.compile(r"^ +hostname='(?P<host>[^'\n]+)',$", re.M)
_RAY_GONE = re.compile(r"^The actor \w+ is unavailable: |its node has died", re.M)
"""Of a worker alone that died, the daemon of Ray on its host says so, for which Ray waits a second."""
_RAY_REASON = "Ray does not reach it any more"
_SPAWNED = re.compile(
    r"^torch\.multiprocessing\.spawn\.Process(?:Exited|Raised)Exception: process (?P<rank>\d+) terminated with "
    r"(?:exit code (?P<code>\d+)|signal (?P<signal>SIG\w+))",
    re.MULTILINE,
)
"""How torch.multiprocessing.spawn tells it."""
_LAUNCHERS = ("ChildFailedError", "ProcessExitedException", "ProcessRaisedException")
"""Exceptions by which a launcher tells that a rank has failed."""
_FRAMES = re.compile(r"^(?:Traceback \(most recent call last\):\n)?(?P<frames>(?:[ \t].*\n)+)", re.MULTILINE)
_RAISED = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$", re.MULTILINE)


@dataclass(frozen=True)
class Stopped:
    """How the job ended, as its watch saw it."""

    status: int
    """The launcher's exit status; negative for a signal."""
    seconds: float
    timed_out: bool = False
    out_of_time: bool = False
    left_behind: tuple[str, ...] = ()
    ended_at: float | None = None
    """When we began to end it, on the monotonic clock; None where it ended by itself. What its processes say later,
    of peers that are gone and of signals, is our doing."""
    oom_kills: int = 0
    """Processes of our control group that the kernel killed meanwhile because there was no memory left."""
    clock: float = field(default_factory=lambda: time.time() - time.monotonic())
    """What makes a time of a record one since the epoch."""


def write_job(folder: Path, job: Job, launch: Launch) -> None:
    """Note what is run, for those who read the folder."""
    working, began = str(Path.cwd()), time.time()
    values = {"job": asdict(job), "launch": launch.to_json(), "working": working, "began": began}
    write_json(folder / JOB, values)


def write_ending(folder: Path, stopped: Stopped) -> None:
    write_json(folder / ENDING, asdict(stopped))


def write_sources(folder: Path, trace: Trace) -> None:
    """Note the content of the files in which something was recorded, without those that were written meanwhile."""
    recordings = [*trace.recorded.values(), *trace.others]
    records = (record for recording in recordings for record in (recording.record, *recording.children))
    files = {Path(file) for record in records for file in record.sources}
    began = began_at(folder)
    write_json(folder / SOURCES, {str(file): checksum(file) for file in files if written_at(file) <= began})


def is_as_it_ran(folder: Path, file: Path) -> bool:
    """Whether a file has the content with which it ran in the job of this folder. One in which nothing was recorded
    has, where it was not written since the job was started."""
    content = (read_json(folder / SOURCES) or {}).get(str(file))
    return checksum(file) == content if content else written_at(file) <= began_at(folder)


def read_job(folder: Path) -> tuple[Job, Launch] | None:
    """What was run; None where the folder is no job's."""
    values = read_json(folder / JOB)
    return (from_plain(Job, values["job"]), Launch.from_json(values["launch"])) if values else None


def working_directory(folder: Path) -> Path:
    """Where the job in this folder was started; this process' own directory where that was not written down."""
    return Path((read_json(folder / JOB) or {}).get("working") or Path.cwd())


def began_at(folder: Path) -> float:
    """When the job in this folder was started, in seconds since the epoch; 0 where that was not written down."""
    return float((read_json(folder / JOB) or {}).get("began", 0.0))


def read_trace(folder: Path, ended_at: float | None = None) -> Trace:
    """The run in this folder, whose job was ended on another host at this time, if any, by the records' clock."""
    known = read_job(folder)
    assert known is not None, f"{folder} is no job's"
    job, launch = known
    stopped = read_ending(folder)
    if ended_at is not None:
        stopped = replace(stopped, ended_at=ended_at)
    recorded = read_run(folder / RECORD, math.inf if stopped.ended_at is None else stopped.ended_at)
    launch = _as_numbered(launch, recorded)
    output = _RankOutput(folder, job, launch, stopped, recorded)
    numbers = _ranks_here(job, launch, recorded)
    alone = recorded.others[:1] if job.kind is JobKind.LINE and not recorded.ranks else ()
    recordings = dict(recorded.ranks) or dict(enumerate(alone))
    snapshot = None  # where nobody looked, or was killed while looking
    with suppress(Refused):
        snapshot = snapshots.read(folder / SNAPSHOT)
    processes = snapshot.ranks if snapshot else {}
    ranks = forgive([_rank(rank, recordings.get(rank), output, processes.get(rank)) for rank in numbers])
    return Trace(
        ranks=ranks,
        status=stopped.status,
        seconds=stopped.seconds,
        timed_out=stopped.timed_out,
        out_of_time=stopped.out_of_time,
        log=tail(folder / ERR),
        left_behind=stopped.left_behind,
        bundled=job.bundled,
        world_size=_world_size(recorded),
        shortened=_shortened(recorded),
        rehearsal=job.recorder.rehearse,
        imagined=launch.imagined,
        others=tuple(other for other in recorded.others if other not in alone),
        snapshot=snapshot,
        oom_kills=stopped.oom_kills,
        lost=(
            *(LostHost(host, ranks, STOPPED) for host, ranks in recorded.lost.items()),
            *hosts_that_ray_lost(recorded.others),
        ),
        written=read_written(folder),
        before=tuple(_ended_job(job, before, stopped) for before in recorded.before),
    )


def _ended_job(job: Job, ranks: Mapping[int, Recording], stopped: Stopped) -> Trace:
    """One that ended before the last one began, as its ranks alone tell of it."""
    recorded = Recorded(ranks)
    return Trace(
        ranks=tuple(
            RankTrace(
                rank,
                finished=_status(recording) == 0,
                failure=_of_record(recording.raised, stopped.clock) if recording.raised else None,
                exit_code=_status(recording),
                recording=recording,
            )
            for rank, recording in ranks.items()
        ),
        status=max(_status(recording) or 0 for recording in ranks.values()),
        world_size=_world_size(recorded),
        shortened=_shortened(recorded),
        rehearsal=job.recorder.rehearse,
    )


def tail(file: Path) -> tuple[str, ...]:
    """The last lines of a file that may be long; empty where it is absent."""
    return tuple(_read(file).splitlines()[-_TAIL_LINES:])


def _ranks_here(job: Job, launch: Launch, recorded: Recorded) -> list[int]:
    if job.kind is JobKind.LINE:
        size = _world_size(recorded) or 0
        here = {int(rank.environ.get("LOCAL_WORLD_SIZE") or size) for rank in recorded.ranks.values()}
        # Without a process group there is one process to tell of: the line's own.
        return sorted({*recorded.ranks, *(range(size) if here == {size} else ())}) or [0]
    return list(launch.ranks)


def _world_size(recorded: Recorded) -> int | None:
    groups = [event for rank in recorded.ranks.values() for event in rank.groups if event.action == "init"]
    return max((event.size or 0 for event in groups), default=None)


def _shortened(recorded: Recorded) -> Shortened | None:
    ranks = recorded.ranks.values()
    drawn = [[pass_.drawn for pass_ in rank.passes if pass_.ended == "shortened"] for rank in ranks]
    passes = max(map(len, drawn), default=0)
    ended = [rank.step_count for rank in ranks if rank.exit and rank.exit.how == "shortened"]
    if not passes and not ended:
        return None
    given = {batches for counts in drawn for batches in counts} or {0}
    fewest = min(given) if len(given) > 1 else None
    whole = max(sum(pass_.ended == "exhausted" for pass_ in rank.passes) for rank in ranks)
    return Shortened(max(given), passes, max(ended, default=None), fewest, whole)


class _RankOutput:
    """What the ranks and the launcher wrote."""

    def __init__(self, folder: Path, job: Job, launch: Launch, stopped: Stopped, recorded: Recorded) -> None:
        self.folder, self.job, self.launch, self.stopped = folder, job, launch, stopped
        launcher = _read(folder / ERR)
        self.exit_codes = torchrun.exit_codes(launcher, launch)
        for ended in _SPAWNED.finditer(launcher):
            named = getattr(signal, ended["signal"] or "", None)
            code = int(ended["code"]) if ended["code"] else -int(named) if named else 1
            self.exit_codes.setdefault(int(ended["rank"]), code)
        blamed = self.exit_codes or any(rank.raised or _status(rank) for rank in recorded.ranks.values())
        by_itself = stopped.ended_at is None
        if job.kind is JobKind.LINE and stopped.status and by_itself and not blamed:
            self.exit_codes[0] = stopped.status

    def of(self, rank: int) -> Path:
        """The folder of what torchrun kept of a rank; one that does not exist where it kept nothing."""
        if self.job.kind is JobKind.LINE:
            return self.folder
        starts = (path for number, path in torchrun.rank_folders(self.folder, self.launch) if number == rank)
        return next(starts, self.folder / "none")

    def ended_well(self, rank: int) -> bool:
        """Whether the launcher ended by itself and had no complaint of this rank."""
        return not self.stopped.timed_out and self.stopped.status == 0 and rank not in self.exit_codes


def _rank(
    rank: int, recording: Recording | None, output: _RankOutput, process: SampledProcess | None
) -> RankTrace:
    path = output.of(rank)
    summary = read_json(output.folder / "out" / f"rank{rank}.json")
    code, failure = _status(recording), None
    if not _was_ended(recording, process, output.stopped):
        code = code if code is not None else output.exit_codes.get(rank)
        broke = bool(code) and code != -signal.SIGTERM  # by which the launcher ends those that are left
        failure = _failure(recording, path, output.stopped, broke)
    # A process that never imported torch left no record; then the launcher has to say whether all went well.
    ended_well = _status(recording) == 0 or (code is None and output.ended_well(rank))
    return RankTrace(
        rank,
        finished=summary is not None if output.job.bundled else ended_well and failure is None,
        summary=summary or {},
        failure=failure,
        exit_code=code,
        output=tail(path / ERR) or tail(path / OUT),
        stack=process.stack if process else (),
        recording=recording,
    )


def _was_ended(recording: Recording | None, process: SampledProcess | None, stopped: Stopped) -> bool:
    """Whether a rank was there, and had said nothing of an end, when we ended it."""
    if stopped.ended_at is None or process is None or process.doing is Doing.GONE:
        return False
    return recording is not None and recording.exit is None and recording.raised is None


def _status(recording: Recording | None) -> int | None:
    """The exit status that the script chose; None where it did not come to that, or ended by an exception."""
    if recording is None or recording.exit is None:
        return None
    return 1 if recording.raised else int(recording.exit.status or 0)


def _failure(recording: Recording | None, path: Path, stopped: Stopped, broke: bool) -> Failure | None:
    """The exception that ended a rank: what the recorder saw, what @record wrote, what stands in its output."""
    # A launcher that was recorded stands for its rank where that left no record.
    if recording and recording.raised and not recording.raised.type.endswith(_LAUNCHERS):
        return _of_record(recording.raised, stopped.clock)
    if failure := torchrun.recorded_failure(path):
        return failure
    printed = _tracebacks(_read(path / ERR)) if broke or recording is None else ()
    # Ranks of a launch line share their output with their launcher.
    tracebacks = [traceback for traceback in printed if not traceback[1]["kind"].endswith(_LAUNCHERS)]
    if not tracebacks or 'File "' not in tracebacks[-1][0]["frames"]:
        return None
    frames, raised = tracebacks[-1]
    text = frames[0] + raised[0]
    return Failure(raised["kind"], raised["message"] or "", text, (path / ERR).stat().st_mtime)


def _tracebacks(text: str) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """The frames and the exception of each, by two expressions: one would try each of the hundreds of lines of a stack
    that a fatal signal left, which no exception follows, as its first."""
    for frames in _FRAMES.finditer(text):
        if raised := _RAISED.match(text, frames.end()):
            yield frames, raised


def _of_record(raised: Raised, clock: float) -> Failure:
    raised = before_cleanup(raised)
    frames = (
        f'  File "{frame.file}", line {frame.line}, in {frame.function}\n'
        for frame in raised.frames
        if not is_of_recorder(frame.file)
    )
    text = f"Traceback (most recent call last):\n{''.join(frames)}{raised.type}: {raised.message}\n"
    return Failure(raised.type, raised.message, text, raised.time + clock)


def _as_numbered(launch: Launch, recorded: Recorded) -> Launch:
    """The launch with the number that this node was given, which a rendezvous may choose."""
    environs = [rank.environ for rank in recorded.ranks.values()]
    given = {environ.get("GROUP_RANK", "") for environ in environs if launch.nnodes > 1}
    number = given.pop() if len(given) == 1 else ""
    return replace(launch, node_rank=int(number)) if number.isdigit() else launch


def read_ending(folder: Path) -> Stopped:
    values = read_json(folder / ENDING)
    if values is None:  # the command itself was killed, and the records stand for themselves
        return Stopped(status=-int(signal.SIGKILL), seconds=0.0)
    return from_plain(Stopped, values)


def _read(file: Path) -> str:
    """The end of a file that may be long; empty where it is absent."""
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            return opened.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def before_cleanup(raised: Raised) -> Raised:
    """The exception that would have ended the script, where another one was raised in a ``finally``, or before the
    ``raise`` of an ``except``; else the exception itself."""
    for frame in raised.frames:
        at_work = {handled.line for handled in raised.handling if handled.file == frame.file}
        for body, cleanup in cleanups(frame.file) if at_work else ():
            if at_work & set(body) and frame.line in cleanup and raised.causes:
                kind, _, message = raised.causes[-1].partition(": ")
                return replace(raised, type=kind, message=message, frames=raised.handling)
    return raised


def hosts_that_ray_lost(processes: Iterable[Recording]) -> tuple[LostHost, ...]:
    """The hosts whose workers Ray Train could not reach any more, with their ranks: its exception tells, in the
    program, which is one of the processes that are no rank."""
    ranks: dict[str, list[int]] = {}
    for message in (process.raised.message for process in processes if process.raised):
        for worker in _RAY_WORKER.finditer(message):
            if (host := _RAY_HOST.search(worker["text"])) and _RAY_GONE.search(worker["text"]):
                ranks.setdefault(host["host"], []).append(int(worker["rank"]))
    return tuple(LostHost(host, tuple(sorted(of_host)), _RAY_REASON) for host, of_host in ranks.items())
