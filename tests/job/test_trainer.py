"""The torchrun command, the bundled trainer, and what is read back of them. Each run takes seconds, so all
tests of one script share one."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ddpdoctor import registry
from ddpdoctor.job.run import JobRun
from ddpdoctor.job.trainer import bundled_trainer, trainer_launch, trainer_script
from ddpdoctor.judge import judge, merge
from ddpdoctor.launch import Launch
from ddpdoctor.model import Finding, Level, Outcome, Source
from ddpdoctor.trace import Trace
from tests.support.processes import running_below, wait_until

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent / "scripts"
ROOT = Path(__file__).parents[2]


def run_trainer(launch: Launch, folder: Path, deadline: float, script: Path | None = None) -> Trace:
    """Start the trainer, or a script in its place, and wait for it."""
    return JobRun(bundled_trainer(launch, folder, script), trainer_launch(launch), folder).finish(deadline)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Trace]:
    """Runs a script of tests/job/scripts once, on two ranks unless told otherwise."""
    traces: dict[str, Trace] = {}

    def run(name: str | None = None, nproc: int = 2, seconds: float = 120) -> Trace:
        if str(name) not in traces:
            folder = tmp_path_factory.mktemp(str(name))
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", str(trainer_script().parent))
                script = SCRIPTS / f"{name}.py" if name else None
                deadline = time.monotonic() + seconds
                traces[str(name)] = run_trainer(Launch(nproc=nproc), folder, deadline, script)
            assert not running_below(folder)
        return traces[str(name)]

    return run


def findings(trace: Trace) -> tuple[Finding, ...]:
    merged = merge(judge(Source.RUN, registry.select(Source.RUN), trace, print))
    assert not [result for result in merged.results if result.outcome is Outcome.ERROR]
    return tuple(finding for finding in merged.findings if finding.level is not Level.INFO)


def test_the_trainer_learns_and_nothing_is_found(run):
    trace = run(nproc=3)
    assert (trace.broken, trace.status, trace.left_behind) == (None, 0, ())
    assert [one.summary["world_size"] for one in trace.ranks] == [3, 3, 3]
    assert findings(trace) == ()


def test_the_first_exception_is_found_with_its_line(run):
    trace = run("raises")
    (finding,) = findings(trace)
    assert finding.code == "DD304"
    assert finding.headline == "rank 1 failed with ValueError 'no such sample' in the training run"
    assert finding.ranks == (1,)
    assert finding.where is not None
    assert finding.where.file == "tests/job/scripts/raises.py"
    assert finding.where.function in ("forward", "Model.forward")  # qualified since Python 3.11


def test_a_killed_rank_is_found_by_its_signal(run):
    (finding,) = findings(run("killed"))
    assert (finding.code, finding.ranks) == ("DD012", (1,))
    assert finding.headline == "rank 1 was killed by SIGKILL in the training run"


def test_a_rank_that_hangs_is_found_with_the_stacks(run):
    trace = run("hangs")
    assert trace.timed_out
    (finding,) = findings(trace)
    assert (finding.code, finding.ranks) == ("DD306", (1,))
    assert finding.headline.startswith("rank 1 sleeps at tests/job/scripts/hangs.py:16 for ")
    assert finding.where is not None
    assert finding.where.function in ("forward", "Model.forward")  # qualified since Python 3.11


def test_weights_that_differ_are_found_and_an_abort_after_the_end_is_not(run):
    trace = run("differs")
    assert trace.status != 0
    assert trace.broken is None
    (finding,) = findings(trace)
    assert (finding.code, finding.ranks) == ("DD206", (1,))
    assert trace.ranks[1].summary["difference"]["tensor"] == "head.1.bias"
    assert trace.ranks[1].summary["difference"]["element"] == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_two_seconds_after_an_end_by_a_signal(tmp_path, number):
    arguments = f"Launch(nproc=2), Path({str(tmp_path)!r}), time.monotonic() + 100, Path({str(SCRIPTS)!r}, 'hangs.py')"
    code = f"from tests.job.test_trainer import *\nrun_trainer({arguments})"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(trainer_script().parent)])}
    process = subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.DEVNULL)
    logs = "torchrun/*/attempt_0/1/stdout.log"
    wait_until(lambda: any("hanging" in log.read_text() for log in tmp_path.glob(logs)), seconds=60)
    process.send_signal(number)
    process.wait(60)
    wait_until(lambda: not running_below(tmp_path))  # how fast it is, benchmarks/ctrl_c.py measures


def test_no_time_left_ends_at_once(tmp_path):
    trace = run_trainer(Launch(nproc=2), tmp_path, time.monotonic())
    assert trace.out_of_time
    assert trace.timed_out
    assert not running_below(tmp_path)
