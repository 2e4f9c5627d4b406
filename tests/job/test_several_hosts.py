"""A job whose hosts each left a folder, read as one."""

from dataclasses import replace
from pathlib import Path

from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.job_folder import Stopped, write_ending, write_job
from ddpdoctor.job.several_hosts import HOSTS, job_folders, read_hosts, without_copies
from ddpdoctor.launch import Launch
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.process import Exit, GroupEvent, Raised
from ddpdoctor.recorder.events.schema import Event
from ddpdoctor.trace import LostHost
from tests.support import records


def host(folder: Path, node_rank: int, *events: Event, boot: float = 0.0, **stopped: object) -> Path:
    """The folder of a host with two ranks, which all write these events; its clock began at another time."""
    (folder / "record").mkdir(parents=True)
    write_job(folder, Job(JobKind.SCRIPT, ("train.py",)), Launch(nproc=2, nnodes=2, node_rank=node_rank))
    for local in (0, 1):
        rank = 2 * node_rank + local
        start = records.start(10 + local, 1.0 - boot, RANK=str(rank), GROUP_RANK=str(node_rank))
        records.write(folder / "record" / f"{start.pid}.jsonl", start, *events)
    ending = {"status": 0, "seconds": 4.0, "clock": 1000.0 + boot, **stopped}
    write_ending(folder, Stopped(**ending))  # type: ignore[arg-type]
    return folder


def test_the_ranks_of_all_hosts_are_one_run(tmp_path: Path) -> None:
    folders = [host(tmp_path / str(node), node, Exit("returned", 5.0)) for node in (1, 0)]
    trace = read_hosts(folders)
    assert [rank.rank for rank in trace.ranks] == [0, 1, 2, 3]
    assert trace.broken is None


def test_what_a_host_wrote_after_another_one_was_ended_is_left_out(tmp_path: Path) -> None:
    hung = host(tmp_path / "0", 0, status=1, timed_out=True, ended_at=30.0)
    lost = Raised("RuntimeError", "Connection closed by peer", -70.0 + 2.0, frames=(Where("train.py", 3),))
    victim = host(tmp_path / "1", 1, lost, boot=100.0, status=1)
    assert read_hosts([victim]).ranks[0].failure is not None
    trace = read_hosts([hung, victim])
    assert [rank.failure for rank in trace.ranks] == [None] * 4
    assert trace.timed_out


def test_a_rendezvous_may_number_the_hosts_otherwise(tmp_path: Path) -> None:
    first, second = (host(tmp_path / str(node), node, Exit("returned", 5.0)) for node in (0, 1))
    for folder in (first, second):
        write_job(folder, Job(JobKind.SCRIPT, ("train.py",)), Launch(nproc=2, nnodes=2, node_rank=0))
    assert [rank.rank for rank in read_hosts([first, second]).ranks] == [0, 1, 2, 3]


def of_attempt(
    folder: Path,
    host: str,
    ranks: tuple[int, ...],
    size: int,
    count: int,
    *events: Event,
    groups: bool = True,
) -> Path:
    """The folder of a host, of which torchrun starts each rank once more with each restart."""
    (folder / "record").mkdir(parents=True, exist_ok=True)
    write_job(folder, Job(JobKind.SCRIPT, ("train.py",)), Launch(nproc=2, nnodes=3, spare_nodes=1))
    for local, rank in enumerate(ranks):
        numbers = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": size, "TORCHELASTIC_RESTART_COUNT": count}
        environ = {name: str(number) for name, number in numbers.items()} | {"GROUP_RANK": str(rank // 2)}
        start = replace(records.start(10 * count + local, 20.0 * count, parent=5, **environ), host=host)
        init = GroupEvent("init", start.time + 1, None, rank=rank, size=size)
        records.write(folder / "record" / f"{start.pid}.jsonl", start, *([init] if groups else []), *events)
    return folder


def test_a_host_that_an_elastic_job_restarted_without_is_named_by_its_records(tmp_path: Path) -> None:
    """Its command was killed with its ranks, and its folder remained."""
    hosts = {name: tmp_path / name for name in ("a", "b", "c")}
    for number, (name, folder) in enumerate(hosts.items()):
        of_attempt(folder, name, (2 * number, 2 * number + 1), 6, 0)
        if name != "b":
            ranks = (number, number + 1)
            of_attempt(folder, name, ranks, 4, 1, Exit("returned", 30.0))
            write_ending(folder, Stopped(status=0, seconds=40.0))
    trace = read_hosts([*hosts.values()])
    assert trace.lost == (LostHost("b", (2, 3), "its ranks stopped before that"),)
    assert [rank.rank for rank in trace.ranks] == [0, 1, 2, 3]
    assert (trace.broken, trace.restarts) == (None, 1)


def test_a_host_whose_ranks_failed_before_their_process_group_has_not_lost_the_others(tmp_path: Path) -> None:
    a = of_attempt(tmp_path / "a", "a", (0, 1), 4, 1, groups=False)
    b = of_attempt(tmp_path / "b", "b", (2, 3), 4, 1)
    trace = read_hosts([a, b])
    assert trace.lost == ()
    assert [rank.rank for rank in trace.ranks] == [0, 1, 2, 3]


def test_a_run_folder_holds_what_the_other_hosts_delivered(tmp_path: Path) -> None:
    own = host(tmp_path / "job", 0)
    others = [host(tmp_path / HOSTS / name, number) for number, name in enumerate(("node1", "node2"), 1)]
    assert job_folders(tmp_path, own) == (own, *others)


def test_what_a_host_kept_stands_for_what_it_delivered(tmp_path):
    names = {"node0": "7-1", "node1": "7-2", "delivered1": "7-2", "delivered2": "9-3"}
    for folder, name in names.items():
        (tmp_path / folder / "record").mkdir(parents=True)
        (tmp_path / folder / "record" / f"{name}.jsonl").touch()
    own, delivered = (
        [tmp_path / "node0", tmp_path / "node1"],
        [tmp_path / "delivered1", tmp_path / "delivered2"],
    )
    assert without_copies(own, delivered) == (*own, tmp_path / "delivered2")
