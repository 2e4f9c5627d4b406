"""Real failures, whose output make_outputs.py keeps: the root cause comes first, and nothing else fails."""

from pathlib import Path

import pytest

from ddpdoctor import registry
from ddpdoctor.judge import merge
from ddpdoctor.logs import root_cause
from ddpdoctor.logs.input_files import streams
from ddpdoctor.logs.read import read
from ddpdoctor.model import Level, Source

OUTPUTS = Path(__file__).parent / "outputs"
CAUSES = {
    "chained.log": (
        "DD304",
        "rank 1 failed with FileNotFoundError \"[Errno 2] No such file or directory: 'missing.yaml'\"",
    ),
    "exception_8.log": ("DD304", "rank 6 failed with KeyError \"'dog'\""),
    "exception_folder": ("DD304", "rank 0 failed with KeyError \"'dog'\""),
    "exception_log_info.log": ("DD304", "rank 0 failed with KeyError \"'dog'\""),
    "exception_tee.log": ("DD304", "rank 0 failed with KeyError \"'dog'\""),
    "files.log": ("DD015", "rank 1 ran out of file descriptors"),
    "full_disk.log": ("DD019", "a file could not be written to its end: the disk or the quota is full"),
    "hangup.log": ("DD012", "the launcher was ended by SIGHUP"),
    "killed_sigabrt.log": ("DD012", "rank 1 was killed by SIGABRT"),
    "killed_sigbus.log": (
        "DD016",
        "rank 1 was killed by SIGBUS, most likely because shared memory (/dev/shm) was full",
    ),
    "killed_sigkill.log": (
        "DD017",
        "rank 1 was killed by SIGKILL, most likely because the host ran out of memory",
    ),
    "killed_sigkill_tee.log": (
        "DD017",
        "rank 1 was killed by SIGKILL, most likely because the host ran out of memory",
    ),
    "killed_sigsegv.log": ("DD012", "rank 1 was killed by SIGSEGV"),
    "killed_sigterm.log": ("DD012", "rank 1 was killed by SIGTERM"),
    "long_work.log": (
        "DD306",
        "one rank's work was 29 % done after 7 s, and the others' wait for it timed out",
    ),
    "memory.log": ("DD017", "the host ran out of memory"),
    "mismatch.log": ("DD302", "a rank sent 20 bytes where its peer expected 12"),
    "model_differs.log": (
        "DD214",
        "DistributedDataParallel refused a model that is not the same on every rank",
    ),
    "port_taken.log": ("DD002", "port 36345 was taken when the job started"),
    "prefix.log": ("DD403", "the names of a checkpoint begin with 'module.', and those of the model do not"),
    "rank_0_alone.log": ("DD303", "only rank 0 waited in a collective for 6 s, and no other rank joined"),
    "ready_twice.log": ("DD213", "the gradient of block.bias arrived twice in one backward"),
    "refused.log": ("DD004", "no store answered at 127.0.0.1 port 29611"),
    "shared_memory.log": ("DD016", "shared memory (/dev/shm) was full"),
    "truncated.log": ("DD404", "a checkpoint is not complete, so it cannot be read"),
    "uneven.log": ("DD301", "rank 1 did not join a collective, in which rank 0 waited for 6 s"),
    "unused.log": ("DD204", "ranks 0-1 did not produce gradients for parameters 2 3"),
    "unused_tee.log": ("DD204", "ranks 0-1 did not produce gradients for parameters head.bias, head.weight"),
    "variables.log": ("DD001", "RANK was not set in the environment of the script"),
    "worker_killed.log": ("DD311", "a DataLoader worker of rank 1 ended without an error message"),
    "worker_raises.log": ("DD304", "rank 1 failed with KeyError \"'label'\""),
    "worker_raises_folder": ("DD304", "rank 1 failed with KeyError \"'label'\""),
}
HEALTHY = ("healthy.log", "healthy_8_log_info.log")


def findings(name: str):
    checks, broken = registry.select(Source.LOG), []
    log = read(streams([str(OUTPUTS / name)]), root_cause.words(checks))
    found = merge(root_cause.examine(log, checks, broken.append)).findings
    assert not broken
    return found


@pytest.mark.parametrize("name", CAUSES)
def test_the_root_cause_is_named_and_nothing_else_fails(name):
    first, *others = findings(name)
    assert (first.code, first.headline) == CAUSES[name]
    assert [one for one in others if one.level is Level.FAIL] == []
    assert first.evidence


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_raises_nothing(name):
    assert findings(name) == ()


def test_every_output_is_judged():
    assert {one.name for one in OUTPUTS.iterdir()} == {*CAUSES, *HEALTHY}


@pytest.mark.parametrize("name", ["exception_8.log", "worker_raises_folder"])
def test_the_line_of_the_script_is_given(name):
    (first,) = findings(name)
    assert first.where is not None
    assert (first.where.file, first.where.function) in {
        ("/home/user/train.py", "exception"),
        ("/home/user/train.py", "<lambda>"),
    }
