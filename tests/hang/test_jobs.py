"""Which processes are the ranks of which job, on plain data."""

import pytest

from ddpdoctor.hang import jobs
from ddpdoctor.hang.jobs import NoJob, as_they_are_now, jobs_among, jobs_of, launchers_among, script_of
from ddpdoctor.host.system import Process


@pytest.fixture(autouse=True)
def processes_from_100_on_run_python_with_torch(monkeypatch):
    for question in ("runs_python", "loads_torch"):
        monkeypatch.setattr(jobs, question, lambda pid: pid >= 100)


"""Processes below 100 are shells."""
SPAWNED = ("python", "-c", "from multiprocessing.spawn import spawn_main", "--multiprocessing-fork")
TRACKER = ("python", "-c", "from multiprocessing.resource_tracker import main;main(3)")


def shell(pid: int, parent: int = 1, **environ: str) -> Process:
    return Process(pid, ("bash",), "user", parent, environ=environ or {"HOME": "/root"})


def python(pid: int, parent: int, *words: str, **environ: str) -> Process:
    return Process(pid, ("python", *(words or ("train.py",))), "user", parent, 60.0, environ)


def rank(
    pid: int, number: int, parent: int = 100, job: str = "a", port: int = 29500, size: int = 2
) -> Process:
    environ = {
        "RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(number),
        "MASTER_ADDR": "127.0.0.1",
    }
    return python(pid, parent, **environ, MASTER_PORT=str(port), TORCHELASTIC_RUN_ID=job)


TORCHRUN = [shell(10), python(100, 10, "torchrun", "train.py"), rank(101, 0), rank(102, 1)]


def test_the_ranks_of_torchrun_lead_their_own_sessions_and_are_found():
    (job,) = jobs_among(TORCHRUN)
    assert (job.ranks, job.world_size, job.command) == ({101: 0, 102: 1}, 2, ("python", "train.py"))


def test_a_dataloader_worker_inherits_the_rank_and_is_none():
    worker = rank(103, 1, parent=102)
    assert jobs_among([*TORCHRUN, worker, rank(104, 1, parent=103)])[0].ranks == {101: 0, 102: 1}


@pytest.mark.parametrize("pid", [10, 100, 101, 103])
def test_any_process_of_a_job_names_it(pid):
    worker = rank(103, 1, parent=102)
    (job,) = jobs_of([pid], [*TORCHRUN, worker])
    assert job.ranks == {101: 0, 102: 1}


def test_two_jobs_are_told_apart_by_the_id_of_their_run_and_by_their_port():
    others = [rank(201, 0, 200, "b"), rank(202, 1, 200, "b"), rank(301, 0, 300, port=29600)]
    found = [set(job.ranks) for job in jobs_among([*TORCHRUN, *others])]
    assert sorted(found, key=min) == [{101, 102}, {201, 202}, {301}]


def test_two_nodes_of_a_job_on_one_machine_are_one_job():
    nodes = [
        rank(101, 0, 100, size=4),
        rank(102, 1, 100, size=4),
        rank(201, 2, 200, size=4),
        rank(202, 3, 200, size=4),
    ]
    (job,) = jobs_among(nodes)
    assert list(job.ranks.values()) == [0, 1, 2, 3]


def test_jobs_that_only_their_launchers_tell_apart():
    again = [rank(201, 0, 200), rank(202, 1, 200)]
    assert [set(job.ranks) for job in jobs_among([*TORCHRUN, *again])] == [{101, 102}, {201, 202}]


def test_a_rank_left_over_in_the_shell_makes_no_rank_of_the_launcher():
    left = [
        shell(10, RANK="0"),
        python(100, 10, "torchrun", "train.py", RANK="0"),
        rank(101, 0),
        rank(102, 1),
    ]
    (job,) = jobs_among(left)
    assert job.ranks == {101: 0, 102: 1}


def test_slurm_numbers_torchrun_itself_too():
    torchrun = python(100, 10, "torchrun", "train.py", SLURM_PROCID="0", SLURM_NTASKS="1")
    ranks = [
        python(101 + n, 100, RANK=str(n), SLURM_PROCID="0", SLURM_NTASKS="1", WORLD_SIZE="2") for n in (0, 1)
    ]
    (job,) = jobs_among([torchrun, *ranks])
    assert job.ranks == {101: 0, 102: 1}


def test_ranks_that_only_slurm_numbers():
    tasks = [python(101 + n, 10, SLURM_PROCID=str(n), SLURM_NTASKS="2", SLURM_JOB_ID="7") for n in (0, 1)]
    (job,) = jobs_among([shell(10, SLURM_PROCID="0"), *tasks])
    assert (job.ranks, job.world_size) == ({101: 0, 102: 1}, 2)


def test_a_tool_in_the_jobs_container_has_its_variables_and_no_torch(monkeypatch):
    train, tool = (python(pid, 1, RANK="0", MASTER_PORT="29500") for pid in (101, 500))
    monkeypatch.setattr(jobs, "loads_torch", lambda pid: pid < 500)
    (job,) = jobs_among([train, tool])
    assert job.ranks == {101: 0}


def test_ranks_that_have_not_imported_torch_yet_are_found(monkeypatch):
    monkeypatch.setattr(jobs, "loads_torch", lambda pid: False)
    (job,) = jobs_among(TORCHRUN)
    assert job.ranks == {101: 0, 102: 1}


SPAWN = [
    python(100, 10, "spawn.py"),
    Process(101, TRACKER, "user", 100, 60.0),
    Process(102, SPAWNED, "user", 100, 60.0),
    Process(103, SPAWNED, "user", 100, 59.0),
]


@pytest.mark.parametrize("pid", [10, 100, 102])
def test_children_of_mp_spawn_have_no_number_yet(pid):
    (job,) = jobs_of([pid], [shell(10), *SPAWN])
    assert (job.ranks, job.command) == ({102: None, 103: None}, ("python", "spawn.py"))
    assert launchers_among(SPAWN) == [100]


def test_ranks_that_have_lost_their_launcher_are_called_by_their_own_command():
    orphans = [
        Process(1, ("/sbin/init",), "root", 0),
        *(Process(pid, SPAWNED, "user", 1, 60.0) for pid in (102, 103)),
    ]
    (job,) = jobs_of(launchers_among(orphans), orphans)
    assert (job.ranks, job.command) == ({102: None, 103: None}, SPAWNED)


def test_a_process_alone_is_a_job_of_one():
    assert jobs_of([100], [python(100, 10)])[0].ranks == {100: None}


@pytest.mark.parametrize(
    ("pid", "process", "said"),
    [
        (77, shell(10), "there is no process 77"),
        (10, shell(10), "process 10 (bash) and its children do not run Python"),
        (
            11,
            Process(11, ("vim",), "alice", 1),
            "process 11 (vim) is alice's and may not be inspected: run as alice or root, in a container with "
            "--cap-add SYS_PTRACE",
        ),
        (
            11,
            Process(11, ("init",), "root", 1),
            "process 11 (init) is root's and may not be inspected: run as root, in a container with "
            "--cap-add SYS_PTRACE",
        ),
        (12, Process(12, (), "", 2), "process 12 (a kernel thread) and its children do not run Python"),
    ],
)
def test_what_is_no_job(pid, process, said):
    with pytest.raises(NoJob) as raised:
        jobs_of([pid], [process])
    assert str(raised.value) == said


def test_nothing_runs():
    assert jobs_among([shell(10), python(100, 10)]) == []


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (("/usr/bin/python3", "-u", "train.py", "--lr", "1"), ("train.py", "--lr", "1")),
        (("python", "-m", "pkg.train"), ("-m", "pkg.train")),
        (("train",), ("train",)),
        (("python",), ("python",)),
        ((), ()),
    ],
)
def test_a_job_is_called_by_its_script(command, script):
    assert script_of(command) == script


def test_a_rank_may_have_numbered_itself_as_rays_workers_do(monkeypatch):
    numbers = {pid: {"RANK": str(pid - 101), "WORLD_SIZE": "2", "MASTER_PORT": "29500"} for pid in (101, 102)}
    asked = []

    def live_environ(pid, names):
        asked.append(pid)
        return numbers.get(pid, {})

    monkeypatch.setattr(jobs, "live_environ", live_environ)
    workers = [python(pid, 50, HOME="/root") for pid in (101, 102)]
    (job,) = jobs_among(as_they_are_now([shell(50), python(100, 50), *workers, rank(201, 0, job="b")]))[:1]
    assert (job.ranks, job.world_size) == ({101: 0, 102: 1}, 2)
    assert asked == [100, 101, 102]
