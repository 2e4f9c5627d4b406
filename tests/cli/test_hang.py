"""``ddpdoctor hang`` as a user runs it, on ranks that wait as torch's do and need no seconds to import it.

Their ``torch`` is a file that lies where torch's lies and waits on a pipe.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ddpdoctor.cli import run
from ddpdoctor.host.system_calls import call_of
from tests.support.command import SECONDS, Done, ddpdoctor
from tests.support.processes import alive, wait_until

C10D = """\
import mmap, os, select
library = mmap.mmap(os.open(f"{os.path.dirname(__file__)}/libtorch.so", os.O_RDWR | os.O_CREAT), 1)
def barrier():
    ends = os.pipe()
    while not select.select([ends[0]], [], [], 1000)[0]: pass
"""
SCRIPT = """\
import os, sys, threading, time
from torch.distributed import distributed_c10d as dist
rank = int(os.environ["RANK"])
print("here", flush=True)
def main():
    if rank == 0:
        {late}
    dist.barrier()
main()
"""
LOCK = "lock = threading.Lock(); lock.acquire(); lock.acquire()"
WORK = "for step in range(10**9): sum(range(10000))"
GOES_ON = """\
import os, time
from torch.distributed import distributed_c10d
print("here", flush=True)
for step in range(10**9):
    time.sleep(0.002)
"""


class Job:
    """Ranks of one job, each in a session of its own."""

    def __init__(
        self, folder: Path, script: str, ranks: Sequence[int] = (0, 1), size: int = 2, **environ: str
    ) -> None:
        packages = folder / "site-packages"
        (packages / "torch" / "distributed").mkdir(parents=True, exist_ok=True)
        for file, text in {
            "__init__.py": "",
            "distributed/__init__.py": "",
            "distributed/distributed_c10d.py": C10D,
        }.items():
            (packages / "torch" / file).write_text(text)
        (packages / "torch" / "distributed" / "libtorch.so").write_text("not it")
        (folder / "train.py").write_text(script)
        self.folder = folder
        self.ranks = {rank: self._start(rank, size, packages, environ) for rank in ranks}
        for one in self.ranks.values():
            assert one.stdout is not None
            assert one.stdout.readline() == b"here\n"

    def _start(
        self, rank: int, size: int, packages: Path, environ: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MASTER_"))
        }
        own = {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(rank),
            "PYTHONPATH": str(packages),
        }
        job = {"TORCHELASTIC_RUN_ID": str(self.folder), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
        command = [sys.executable, str(self.folder / "train.py")]
        return subprocess.Popen(
            command,
            env={**kept, **own, **job, **environ},
            stdout=subprocess.PIPE,
            cwd=self.folder,
            start_new_session=True,
        )

    @property
    def pids(self) -> list[str]:
        return [str(one.pid) for one in self.ranks.values()]

    def end(self) -> None:
        for one in self.ranks.values():
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.communicate()


@contextmanager
def running(folder: Path, script: str, **options: object) -> Iterator[Job]:
    job = Job(folder, script, **options)
    try:
        yield job
    finally:
        job.end()


@pytest.fixture(scope="module")
def stuck(tmp_path_factory) -> Iterator[Job]:
    with running(tmp_path_factory.mktemp("stuck"), SCRIPT.format(late=LOCK)) as job:
        for pid, call in zip(job.pids, ("futex", "select"), strict=True):
            process = Path("/proc", pid)
            wait_until(lambda process=process, call=call: call_of(process, int(process.name)).text == call)
        yield job


@pytest.fixture(scope="module")
def looked(stuck) -> Done:
    """What is said of the stuck job, which is kept in its folder ``kept``."""
    return ddpdoctor("hang", stuck.pids[1], "--format", "json", "--dump", "kept", cwd=stuck.folder)


def test_who_keeps_the_others_waiting_is_named_with_its_line(looked, stuck):
    assert looked.status == 1
    (finding,) = looked.report["findings"]
    assert (finding["code"], finding["ranks"]) == ("DD307", [0])
    assert (finding["where"]["file"], finding["where"]["line"]) == ("train.py", 7)
    assert finding["headline"] == (
        "rank 0 waits in a lock at train.py:7, while rank 1 waits in barrier at train.py:8"
    )


def test_what_was_seen_of_each_process_is_in_the_report(looked, stuck):
    seen = looked.report["run"]["hang"]
    assert (seen["state"], seen["world_size"]) == ("still", 2)
    assert {str(one["pid"]): one["rank"] for one in seen["processes"]} == dict(
        zip(stuck.pids, (0, 1), strict=True)
    )
    assert [one["call"] for one in seen["processes"]] == ["futex", "select"]


def test_the_job_goes_on_as_it_was(looked, stuck):
    assert all(alive(one.pid) for one in stuck.ranks.values())


def test_what_was_kept_is_judged_again_without_the_job(looked, stuck, tmp_path):
    again = ddpdoctor("hang", "kept", "--format", "json", cwd=stuck.folder)
    assert again.status == 1
    assert again.report["findings"] == looked.report["findings"]
    assert again.report["run"]["hang"]["processes"] == looked.report["run"]["hang"]["processes"]


def test_a_person_reads_it_at_80_columns(looked, stuck):
    done = ddpdoctor("hang", "kept", cwd=stuck.folder, env={"NO_COLOR": "1", "COLUMNS": "80"})
    assert re.match(r"ddpdoctor \S+, 2 ranks on 1 host +.*train\.py\n", done.out)
    assert "FAIL[DD307]: rank 0 waits in a lock at train.py:7" in done.out
    assert "\x1b" not in done.out
    assert done.err == ""


@pytest.mark.slow
def test_a_job_of_two_hosts_is_judged_from_what_both_kept(tmp_path):
    script = SCRIPT.format(late=LOCK)
    for host, ranks in (("node-a", (0, 1)), ("node-b", (2, 3))):
        # On one machine they would be found together.
        with running(tmp_path / host, script, ranks=ranks, size=4) as job:
            done = ddpdoctor("hang", job.pids[0], "--dump", str(tmp_path / "kept"), cwd=tmp_path)
            assert done.status == 1, done.err
            missing = "2-3" if host == "node-a" else "0-1"
            assert f"ranks {missing} not found" in " ".join(done.out.split())
    done = ddpdoctor("hang", "kept", "--format", "json", cwd=tmp_path)
    (finding,) = done.report["findings"]
    assert (finding["code"], finding["ranks"]) == ("DD307", [0])
    assert "ranks 1-3 wait in barrier" in finding["headline"]
    assert done.report["notes"] == []


@pytest.mark.slow
def test_a_rank_that_works_while_others_wait_is_slow_and_not_stuck(tmp_path):
    with running(tmp_path, SCRIPT.format(late=WORK)) as job:
        done = ddpdoctor("hang", job.pids[0], "--format", "json", cwd=tmp_path)
    assert done.status == 0
    (finding,) = done.report["findings"]
    assert (finding["code"], finding["level"], finding["ranks"]) == ("DD306", "warn", [0])


@pytest.mark.slow
def test_a_job_that_goes_on_hangs_nowhere(tmp_path):
    with running(tmp_path, GOES_ON) as job:
        done = ddpdoctor("hang", job.pids[0], "--verbose", cwd=tmp_path)
    assert done.status == 0
    assert "no rank is blocked on a missing rank" in done.out


@pytest.mark.slow
def test_several_jobs_are_listed_and_none_is_chosen(stuck, tmp_path):
    with running(tmp_path, GOES_ON) as other:
        done = ddpdoctor("hang", "--quiet", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "jobs run here; give a process id of one of them:" in done.err.splitlines()[0]
    for job in (stuck, other):
        assert f"  ddpdoctor hang {min(map(int, job.pids))}    # ranks 0-1: " in done.err


SAID = {
    "gone": (["999999999"], "there is no process 999999999"),
    "not Python": (["SLEEP"], "and its children do not run Python"),
    "no folder": (["nowhere"], "'nowhere' is neither a folder nor a process id"),
    "an empty folder": (["."], "no file ends with .snapshot.json, as those of ddpdoctor hang --dump do"),
    "both": ([".", "1"], "give process ids or folders, not both"),
    "no dumps": (
        ["--flight-recorder", "."],
        "--flight-recorder '.': no file name contains a rank",
    ),
    "no such dumps": (
        ["--flight-recorder", "/nowhere/at/all"],
        "--flight-recorder '/nowhere/at/all' does not exist",
    ),
    "dumps and a job": (["1", "--flight-recorder", "."], "--flight-recorder takes its folder alone"),
}


@pytest.mark.parametrize("case", SAID)
def test_what_cannot_be_looked_at_is_one_clear_line_and_status_2(tmp_path, monkeypatch, capsys, case):
    words, said = SAID[case]
    monkeypatch.chdir(tmp_path)
    with subprocess.Popen(["sleep", "1000"]) as sleep:
        try:
            status = run(["hang", "--quiet", *(word.replace("SLEEP", str(sleep.pid)) for word in words)])
        finally:
            sleep.kill()
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.startswith("ddpdoctor: error: ")
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_folder_that_somebody_made_up_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.snapshot.json").write_text(json.dumps({"schema": 1, "\x1b[31m": []}))
    monkeypatch.chdir(tmp_path)
    assert run(["hang", "."]) == 2
    assert capsys.readouterr().err == (
        "ddpdoctor: error: '.': a.snapshot.json is not what ddpdoctor writes: it has no seconds\n"
    )


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_looked_at(stuck, capsys):
    assert run(["hang", stuck.pids[0], "--dump", "/proc/nowhere"]) == 2
    assert capsys.readouterr().err == (
        "ddpdoctor: error: --dump '/proc/nowhere' cannot be written: No such file or directory\n"
    )


def test_ctrl_c_leaves_the_job_as_it_was(stuck):
    command = [sys.executable, "-m", "ddpdoctor", "hang", stuck.pids[0]]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    while "looking at" not in process.stderr.readline():
        pass
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert said.endswith("ddpdoctor: stopped; the job keeps running\n")
    wait_until(lambda: all(state(one.pid) == "S" for one in stuck.ranks.values()))


def state(pid: int) -> str:
    """The kernel's letter: t where a tracer left it halted."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
