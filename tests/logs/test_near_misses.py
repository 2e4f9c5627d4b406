"""Failures whose lines resemble those of other failures, each beside the one that it must not be taken for."""

import pytest

from tests.support.logs import explained, raised

FULL = "torch.cuda.OutOfMemoryError"
OLD = (
    "CUDA out of memory. Tried to allocate 2.00 GiB (GPU {gpu}; 15.78 GiB total capacity; {own} GiB already allocated; "
    "5.75 MiB free; {own} GiB reserved in total by PyTorch) If reserved memory is >> allocated memory"
)
NEW = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity of 15.78 GiB of which 5.75 MiB is "
    "free. Including non-PyTorch memory, this process has {own} GiB memory in use. Of the allocated memory 3.00 GiB"
)
ADAPTERS = "n1:10:20 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [RO]; OOB "
"eth0:10.0.0.1<0>\n"
TRAINS = "".join(f"step {step} loss 0.{step}\n" for step in range(3))


def full(message: str, *owns: str, gpus: str = "0000") -> str:
    return "".join(
        raised(rank, FULL, message.format(own=own, gpu=gpus[rank])) for rank, own in enumerate(owns)
    )


def waits(*calls: tuple[int, int, str]) -> str:
    """Watchdogs' lines: the rank in the job, in its group, and the operation."""
    return "".join(
        f"[rank{rank}]:[E1127 10:00:00.1 ProcessGroupNCCL.cpp:616] [Rank {in_group}] Watchdog caught collective "
        f"operation timeout: WorkNCCL(SeqNum=12, OpType={operation}, NumelIn=10, NumelOut=10, Timeout(ms)=600000) ran "
        "for 600010 milliseconds before timing out.\n"
        for rank, in_group, operation in calls
    )


def unanswered(*adapters: int) -> str:
    return "".join(
        f"n1:1{rank}:20 [{rank}] transport/net_ib.cc:2130 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<51234> "
        "with "
        f"status=12 opcode=0 len=0 vendor err 129 (Send) localGid ::ffff:1 remoteGids::ffff:2 hca mlx5_{adapter}\n"
        for rank, adapter in enumerate(adapters)
    )


def counted(other: int) -> str:
    return raised(
        1,
        "RuntimeError",
        f"DDP expects same model across all ranks, but Rank 1 has 148 params, while rank 0 has inconsistent {other} "
        "params.",
    )


@pytest.mark.parametrize(
    ("text", "code", "headline"),
    [
        (
            full(OLD, "7.5", "7.7"),
            "DD803",
            "GPU 0 ran out of memory on ranks 0-1, each of which had a part of it",
        ),
        (
            full(NEW, "7.5", "7.7"),
            "DD803",
            "GPU 0 ran out of memory on ranks 0-1, each of which had a part of it",
        ),
        (full(OLD, "15.1", "15.2"), "DD806", "ranks 0-1 ran out of memory on GPU 0"),
        (full(OLD, "7.5", "7.7", gpus="01"), "DD806", "ranks 0-1 ran out of memory on GPU"),
        (full(OLD, "7.5"), "DD806", "rank 0 ran out of memory on GPU 0"),
        (
            waits((0, 0, "ALLREDUCE"), (1, 1, "BROADCAST")),
            "DD302",
            "rank 0 waited in ALLREDUCE number 12 of 10 elements, rank 1 in BROADCAST number 12 of 10 elements",
        ),
        (
            waits((0, 0, "ALLREDUCE"), (1, 1, "BROADCAST"), (2, 0, "ALLREDUCE"), (3, 1, "BROADCAST")),
            "DD312",
            "ranks 0-3 waited in collectives for 600 s",
        ),
        (waits((2, 2, "ALLREDUCE"), (3, 3, "BROADCAST")), "DD312", "ranks 2-3 waited in collectives"),
        (waits((0, 0, "ALLREDUCE"), (1, 1, "ALLREDUCE")), "DD312", "ranks 0-1 waited in ALLREDUCE number 12"),
        (counted(0), "DD706", "a rank got a parameter count of 0 from another rank"),
        (counted(140), "DD214", "DistributedDataParallel refused a model that is not the same on every rank"),
        (
            ADAPTERS + TRAINS + unanswered(1, 1),
            "DD705",
            "an InfiniBand transfer of adapter mlx5_1, one of 3, ended",
        ),
        (ADAPTERS + TRAINS + unanswered(1, 2), "DD705", "an InfiniBand transfer ended with status 12"),
        (ADAPTERS + unanswered(1), "DD703", "transfers of adapter mlx5_1, one of 3, got no answer"),
        (
            raised(
                1,
                "BlockingIOError",
                "[Errno 11] Unable to create file (unable to lock file, errno = 11, error)",
            ),
            "DD020",
            "rank 1 could not open an HDF5 file that another process has open for writing",
        ),
        (
            raised(
                1,
                "OSError",
                "[Errno 37] Unable to open file (unable to lock file, errno = 37, error message)",
            ),
            "DD304",
            "rank 1 failed with OSError",
        ),
        (
            raised(2, "sqlite3.OperationalError", "database is locked"),
            "DD020",
            "rank 2 found an SQLite database locked by another process",
        ),
        (raised(2, "sqlite3.OperationalError", "no such table: runs"), "DD304", "rank 2 failed with"),
    ],
)
def test_each_is_told_from_the_other(text: str, code: str, headline: str) -> None:
    first = explained(text)[0]
    assert (first.code, first.headline[: len(headline)]) == (code, headline)


def test_a_full_gpu_of_several_ranks_names_both_readings() -> None:
    first = explained(full(OLD, "7.5", "7.7"))[0]
    assert "one GPU" in first.why
    assert "an earlier run" in first.why
    assert first.confidence.value == "likely"


def test_a_line_that_names_two_problems_says_so() -> None:
    first = explained(
        "n1:10:20 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 101 'invalid device ordinal'\n"
        + raised(
            0,
            "torch.distributed.DistBackendError",
            "NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled cuda error",
        )
    )[0]
    assert (first.code, first.confidence.value) == ("DD706", "likely")
    assert [line.text for line in first.evidence if "may mean" in line.text] == [
        "the same line may mean: a rank used a GPU number that the process does not have (DD802)"
    ]


def test_a_line_that_names_one_problem_has_one_reading() -> None:
    first = explained(raised(0, "RuntimeError", "CUDA error: invalid device ordinal"))[0]
    assert first.code == "DD802"
    assert not any("may mean" in line.text for line in first.evidence)


@pytest.mark.parametrize(
    ("client", "code"),
    [
        ("site-packages/urllib3/util/connection.py", "DD304"),
        ("site-packages/torch/distributed/rendezvous.py", "DD003"),
    ],
)
def test_a_name_that_a_web_client_looks_up_is_no_rank_s_host(client: str, code: str) -> None:
    lookup = (
        "Traceback (most recent call last):\n"
        f'  File "/venv/lib/python3.11/{client}", line 60, in create\n    socket.getaddrinfo(host, port)\n'
        '  File "/usr/lib/python3.11/socket.py", line 962, in getaddrinfo\n    _socket.getaddrinfo(host, port)\n'
        "socket.gaierror: [Errno -2] Name or service not known\n"
        "\nDuring handling of the above exception, another exception occurred:\n\n"
    )
    prefixed = "".join(f"[rank0]: {line}\n" for line in lookup.splitlines())
    found = explained(prefixed + raised(0, "RuntimeError", "the vocabulary is not there"))
    assert [finding.code for finding in found] == [code]


def watchdog(
    rank: int, sequence: int, elements: int, *, last: int, operation: str = "ALLREDUCE", group: str = "0"
) -> str:
    """What a rank writes of a wait: the last collective that it started, and in which group."""
    label = f"[rank{rank}]:[E611 02:14:08.1 ProcessGroupNCCL.cpp:632] "
    return (
        f"{label}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={sequence}, "
        f"OpType={operation}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran for 600012 "
        f"milliseconds before timing out.\n{label}[PG ID 1 PG GUID {group} Rank {rank}]  failure detected by watchdog "
        f"at work sequence id: {sequence} PG status: last enqueued work: {last}, last completed work: {sequence - 1}\n"
    )


ALL_OF_40 = watchdog(0, 31, 40, last=33) + watchdog(1, 31, 40, last=31)
CHECKPOINT = "torch.distributed.checkpoint.api.CheckpointException"
INSIDE = (
    "CheckpointException ranks:dict_keys([0, 2])\n"
    + "".join(
        f'Traceback (most recent call last): (RANK {rank})\n  File "/venv/site-packages/torch/distributed/checkpoint/'
        "filesystem.py\", line 810, in read_metadata\n    with open(path) as file:\n"
        f"FileNotFoundError: [Errno 2] No such file or directory: '/runs/step_9/part_{rank}'\n"
        for rank in (0, 2)
    )
)  # fmt: skip
SPARK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times\n"
)
SPREAD = "You can't train a model that has been loaded with `device_map='auto'` in any distributed mode."
ANALYZED = (
    "Not all ranks joining collective, sequence number: 7\ninternal record id: 6\ngroup info: 0:default_pg\n"
    "collective: nccl:all_reduce\nmissing ranks: {2}\nworld size: 3\nexpected ranks: {0, 1, 2}\n"
)
PYTHON = "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
DOCKER = (
    "docker: Error response from daemon: failed to create task for container: OCI runtime create failed\n"
)


@pytest.mark.parametrize(
    ("text", "code", "headline"),
    [
        (
            watchdog(0, 31, 40, last=33) + watchdog(1, 31, 52, last=31),
            "DD302",
            "rank 0 waited in ALLREDUCE number 31 of 40 elements, rank 1 in ALLREDUCE number 31 of 52 elements",
        ),
        (ALL_OF_40, "DD312", "ranks 0-1 waited in ALLREDUCE number 31"),
        (ALL_OF_40.replace("ALLREDUCE", "ALLTOALL_BASE").replace("=40", "=7", 2), "DD312", "ranks 0-1 waited in"),
        (
            watchdog(0, 31, 40, last=33) + watchdog(1, 29, 40, last=30),
            "DD301",
            "rank 1 did not join ALLREDUCE number 31",
        ),
        (watchdog(0, 31, 40, last=33) + watchdog(1, 29, 40, last=32), "DD312", "ranks 0-1 waited in ALLREDUCE"),
        (
            watchdog(2, 31, 40, last=33, group="7") + watchdog(3, 12, 8, last=12, group="9"),
            "DD312",
            "ranks 2-3 waited in ALLREDUCE number 31 (rank 2), ALLREDUCE number 12 (rank 3) of different groups",
        ),
        (
            watchdog(2, 31, 40, last=33, group="7") + watchdog(3, 12, 8, last=12, group="7"),
            "DD301",
            "rank 3 did not join ALLREDUCE number 31",
        ),
        (
            raised(0, CHECKPOINT, INSIDE),
            "DD304",
            "ranks 0, 2 failed with FileNotFoundError",
        ),
        (raised(0, CHECKPOINT, "CheckpointException ranks:dict_keys([])"), "DD304", f"rank 0 failed with {CHECKPOINT}"),
        (
            SPARK + PYTHON + '  File "/srv/fit.py", line 8, in fit\n    train()\nKeyError: \'label\'\n',
            "DD304",
            "a process failed with KeyError",
        ),
        (SPARK, "DD312", "a process failed, and the output does not show why"),
        (
            SPARK + "Reason: Container killed by YARN for exceeding memory limits. 9.1 GB of 9 GB used\n",
            "DD017",
            "a scheduler or supervisor ended the job because of its memory",
        ),
        (DOCKER, "DD304", "the job did not start: docker: Error response"),
        ("ORTE was unable to reliably start one or more daemons.\n", "DD304", "the job did not start: ORTE was unable"),
        (ANALYZED, "DD301", "rank 2 did not join"),
        (raised(1, "ValueError", SPREAD), "DD224", "rank 1 prepared a model for a distributed job that device_map"),
        (raised(1, "ValueError", SPREAD.replace("any distributed mode", "8-bit")), "DD304", "rank 1 failed"),
        (
            DOCKER + "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch\n",
            "DD808",
            "the NVIDIA driver's library and its kernel module are of different versions",
        ),
    ],
)  # fmt: skip
def test_each_is_told_from_the_next(text: str, code: str, headline: str) -> None:
    first = explained(text)[0]
    assert (first.code, first.headline[: len(headline)]) == (code, headline)


@pytest.mark.parametrize(
    ("kind", "message", "helps"),
    [
        ("PermissionError", "[Errno 13] Permission denied: '/.cache'", "HOME"),
        ("AttributeError", "'DistributedDataParallel' object has no attribute 'encode'", "model.module"),
        ("AttributeError", "'Encoder' object has no attribute 'encode'", "this line"),
        ("RuntimeError", "One of the subprocesses has abruptly died during map operation.", "killed process"),
        ("RuntimeError", "One of the batches has 3 columns", "this line"),
        ("ImportError", "/venv/kernels.so: undefined symbol: _ZN2at4hereE", "--no-build-isolation"),
        ("ImportError", "/venv/kernels.so: cannot open shared object file", "this line"),
        ("OSError", "[Errno 116] Stale file handle: '/home/u/.triton/cache/A1/k.so'", "TRITON_CACHE_DIR"),
        ("OSError", "[Errno 116] Stale file handle: '/nfs/data/a.bin'", "df -h"),
        ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/a.bin'", "this line"),
    ],
)  # fmt: skip
def test_what_helps_follows_from_the_message(kind: str, message: str, helps: str) -> None:
    assert helps in explained(raised(1, kind, message))[0].fix


@pytest.mark.parametrize(
    ("types", "says"), [("4 != 3", "the other one InfiniBand"), ("1 != 2", "does not know")]
)
def test_hosts_with_different_networks_are_told_by_the_types_of_their_connections(
    types: str, says: str
) -> None:
    text = f"n1:910:920 [1] misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type {types}\n"
    assert says in explained(text)[0].why
