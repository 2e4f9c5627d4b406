"""What a job's folder says, read back as a Trace: on folders as a run leaves them."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, SampledProcess
from ddpdoctor.hang import snapshots
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.job_folder import (
    SNAPSHOT,
    Stopped,
    began_at,
    is_as_it_ran,
    read_trace,
    write_ending,
    write_job,
    write_sources,
)
from ddpdoctor.launch import Launch
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.process import Exit, Raised
from ddpdoctor.recorder.events.schema import Event
from ddpdoctor.recorder.options import RecorderOptions
from ddpdoctor.recorder.where import Site
from ddpdoctor.redact import mask_files
from tests.support import records

SCRIPT = Job(JobKind.SCRIPT, ("train.py",))
LINE = Job(JobKind.LINE, ("bash", "run.sh"))
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/jobs/train.py", line 3, in main\n    load()\n'
    "  File \"/jobs/data.py\", line 9, in load\n    raise KeyError(name)\nKeyError: 'split'\n"
)


class Run:
    """The folder of a run."""

    def __init__(self, folder: Path, job: Job = SCRIPT, nproc: int = 2) -> None:
        self.folder = folder
        (folder / "record").mkdir()
        write_job(folder, job, Launch(nproc=nproc))

    def record(self, rank: int, *events: Event, pid: int = 0, parent: int = 1, **environ: str) -> None:
        variables = {"RANK": str(rank), "LOCAL_WORLD_SIZE": "2", **environ}
        start = records.start(pid or 10 + rank, 1.0, parent=parent, **variables)
        records.write(self.folder / "record" / f"{start.pid}.jsonl", start, *events)

    def said(self, rank: int, text: str) -> None:
        own = self.folder / "torchrun" / "x" / "attempt_0" / str(rank)
        own.mkdir(parents=True)
        (own / "stderr.log").write_text(text)

    def trace(self, status: int = 0, **stopped: Any) -> Any:
        write_ending(self.folder, Stopped(status, 4.0, **stopped))
        return read_trace(self.folder)


def exit_(how: str = "returned", status: int | None = None) -> Exit:
    return Exit(how, 5.0, status)


def raised(message: str, t: float = 4.0, kind: str = "ValueError") -> Raised:
    return Raised(kind, message, t, frames=(Where("/jobs/train.py", 3, "main"),))


def test_ranks_that_reached_their_end_have_finished_whatever_came_after(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for rank in (0, 1):
        run.record(rank, exit_())
    trace = run.trace(status=1)  # gloo may abort there
    assert (trace.broken, trace.status) == (None, 1)
    assert [one.exit_code for one in trace.ranks] == [0, 0]


def test_a_rank_without_a_record_is_as_the_launcher_says(tmp_path: Path) -> None:
    assert Run(tmp_path).trace(status=0).broken is None


def test_the_first_exception_is_told_with_its_traceback(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record(0, raised("Connection closed by peer"), exit_("exception", 1))
    run.record(1, raised("no such sample", t=4.5), exit_("exception", 1))
    first = run.trace(status=1).first_to_break()
    assert (first.rank, first.failure.type, first.failure.message) == (1, "ValueError", "no such sample")
    assert 'File "/jobs/train.py", line 3, in main' in first.failure.traceback
    assert first.exit_code == 1


def test_an_exit_status_of_its_own_is_no_end(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record(0, exit_())
    run.record(1, exit_("exit", 3))
    assert [(one.finished, one.exit_code) for one in run.trace(status=1).ranks] == [(True, 0), (False, 3)]


def test_an_exception_before_torch_was_imported_stands_in_the_output(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.said(1, f"some warning\n{TRACEBACK}")
    one = run.trace(status=1).ranks[1]
    assert (one.failure.type, one.failure.message) == ("KeyError", "'split'")
    assert one.failure.traceback.startswith("Traceback")
    assert 'data.py", line 9, in load' in one.failure.traceback


def test_a_long_stack_that_a_fatal_signal_left_is_read_at_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record(0, exit_())
    run.record(1)
    stack = "".join(f'  File "/jobs/model.py", line {line} in forward\n' for line in range(4000))
    run.said(1, f"Fatal Python error: Aborted\n\nCurrent thread 0x7f (most recent call first):\n{stack}\n")
    trace = run.trace(status=1)
    assert trace.ranks[1].failure is None
    assert not trace.ranks[1].finished


def test_a_syntax_error_has_no_traceback_line(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.said(0, '  File "/jobs/train.py", line 2\n    def f(:\n          ^\nSyntaxError: invalid syntax\n')
    assert run.trace(status=1).ranks[0].failure.type == "SyntaxError"


def test_a_launchers_word_about_a_rank_is_not_the_ranks_own(tmp_path: Path) -> None:
    run = Run(tmp_path, LINE)
    for rank in (0, 1):
        run.record(rank, exit_("exit", 2))
    (tmp_path / "stderr.log").write_text(
        "usage: train.py\ntrain.py: error: unrecognized arguments: --local-rank=0\nTraceback (most recent call last):\n"
        '  File "/torch/run.py", line 9, in main\n    run(args)\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\ntrain.py FAILED\n"
    )
    for one in run.trace(status=1).ranks:
        assert (one.failure, one.exit_code) == (None, 2)


def test_what_the_rank_said_stands_for_what_its_launcher_raised(tmp_path: Path) -> None:
    run = Run(tmp_path, LINE)
    kind = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
    told = raised("train.py FAILED", kind=kind)
    run.record(0, told, exit_("exception", 1), RANK="", LOCAL_WORLD_SIZE="")
    (tmp_path / "stderr.log").write_text(TRACEBACK)
    (one,) = run.trace(status=1).ranks
    assert (one.failure.type, one.failure.message) == ("KeyError", "'split'")


def test_a_warning_is_no_exception(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record(0, exit_())
    run.said(0, TRACEBACK + "but it was caught\n")
    assert run.trace().ranks[0].failure is None


@pytest.mark.parametrize(
    ("launcher", "code"),
    [
        ("  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 12)\n", -9),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\n",
            -9,
        ),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 7\n", 7),
    ],
)
def test_the_launcher_tells_how_a_rank_died_without_a_word(launcher: str, code: int, tmp_path: Path) -> None:
    run = Run(tmp_path, LINE)
    for rank in (0, 1):
        run.record(rank, *([exit_()] if rank == 0 else []))
    (tmp_path / "stderr.log").write_text(launcher)
    assert [one.exit_code for one in run.trace(status=1).ranks] == [0, code]


@pytest.mark.parametrize(("code", "of_both"), [(-15, False), (1, True)])
def test_the_last_traceback_is_none_of_a_rank_that_the_launcher_ended(
    code: int, of_both: bool, tmp_path: Path
) -> None:
    run = Run(tmp_path, LINE)
    run.record(0, raised("'split'", kind="KeyError"), exit_("exit", 1))
    run.record(1)
    ended = f"  rank      : 1 (local_rank: 1)\n  exitcode  : {code} (pid: 12)\n"
    (tmp_path / "stderr.log").write_text(TRACEBACK + ended)
    first, other = run.trace(status=1).ranks
    assert (first.failure.type, other.failure is not None, other.exit_code) == ("KeyError", of_both, code)


def test_a_line_without_any_record_has_its_own_end(tmp_path: Path) -> None:
    run = Run(tmp_path, LINE)
    (tmp_path / "stderr.log").write_text("no such partition\n")
    (one,) = run.trace(status=4).ranks
    assert (one.rank, one.exit_code, one.output) == (0, 4, ("no such partition",))
    assert not one.finished


def test_a_line_that_we_ended_did_not_end_a_rank(tmp_path: Path) -> None:
    run = Run(tmp_path, LINE)
    run.record(0)
    (rank,) = run.trace(-15, ended_at=6.0).ranks
    assert (rank.exit_code, rank.killed_by) == (None, None)


def test_a_standstill_is_kept_for_later(tmp_path: Path) -> None:
    stack = (Frame("main", "/jobs/train.py", 3),)
    snapshots.write(HangSnapshot((SampledProcess(11, 1, stack=stack),), seconds=6.0), tmp_path / SNAPSHOT)
    trace = Run(tmp_path).trace(-15, timed_out=True)
    assert trace.timed_out
    assert trace.snapshot is not None
    assert trace.snapshot.seconds == 6.0
    assert [one.stack for one in trace.ranks] == [(), stack]
    assert trace.broken == "the training run did not end within 4 s"


def test_what_is_said_after_we_began_to_end_the_job_is_our_doing(tmp_path: Path) -> None:
    run = Run(tmp_path)
    lost = "Connection closed by peer"
    run.record(0)
    run.record(1, raised(lost, t=4.0), exit_("exception", 1))
    (tmp_path / "stderr.log").write_text("  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 11)\n")
    before = run.trace(1, ended_at=6.0).ranks[1]
    assert (before.exit_code, before.failure.message) == (1, lost)
    there = tuple(SampledProcess(10 + rank, rank, doing=Doing.WAITS) for rank in (0, 1))
    snapshots.write(HangSnapshot(there, seconds=6.0), tmp_path / SNAPSHOT)
    after = run.trace(1, ended_at=3.5).ranks[1]
    assert (after.exit_code, after.failure, after.recording.raised) == (None, None, None)
    gone = (there[0], SampledProcess(11, 1, doing=Doing.GONE))
    snapshots.write(HangSnapshot(gone, seconds=6.0), tmp_path / SNAPSHOT)
    assert run.trace(1, ended_at=3.5).ranks[1].exit_code == 1


def test_a_folder_without_an_ending_is_judged_by_its_records(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.record(0, exit_())
    run.record(1)
    assert [one.finished for one in read_trace(tmp_path).ranks] == [True, False]


def test_ranks_of_a_second_node_have_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    write_job(tmp_path, SCRIPT, Launch(nproc=2, nnodes=2, node_rank=1))
    write_ending(tmp_path, Stopped(0, 1.0))
    assert [one.rank for one in read_trace(tmp_path).ranks] == [2, 3]


def test_a_rehearsal_is_marked(tmp_path: Path) -> None:
    run = Run(tmp_path, Job(JobKind.SCRIPT, ("train.py",), RecorderOptions(rehearse=True)))
    assert run.trace().rehearsal


def test_masking_the_folder_leaves_when_the_job_began(tmp_path):
    write_job(tmp_path, SCRIPT, Launch())
    began = began_at(tmp_path)
    assert 0 < began <= time.time()
    mask_files(tmp_path, {})  # writes the file again, after the run
    assert began_at(tmp_path) == began


@pytest.fixture
def ran(tmp_path):
    """The folder of a run of a script, and the script."""
    script, folder = tmp_path / "train.py", tmp_path / "run"
    script.write_text("as it ran")
    os.utime(script, (1, 1))
    folder.mkdir()
    run = Run(folder)
    run.record(0, Site(str(script), 1, "main", 0), exit_())
    write_sources(folder, run.trace())
    return folder, script


def test_a_file_that_was_written_again_with_the_same_content_is_as_it_ran(ran):
    folder, script = ran
    script.write_text("as it ran")
    os.utime(script, (began_at(folder) + 9, began_at(folder) + 9))
    assert is_as_it_ran(folder, script)


def test_another_content_is_not_what_ran_whatever_its_time(ran):
    folder, script = ran
    script.write_text("edited")
    os.utime(script, (1, 1))
    assert not is_as_it_ran(folder, script)


def test_a_file_that_is_written_while_the_job_runs_is_not_what_ran(ran):
    folder, script = ran
    os.utime(script, (began_at(folder) + 9, began_at(folder) + 9))
    write_sources(folder, read_trace(folder))
    assert not is_as_it_ran(folder, script)
