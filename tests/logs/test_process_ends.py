import pytest

from tests.support.logs import log, summary
from tests.support.waits import status, stopped, wait


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (summary(3, -9), [(-9, 3, 100)]),
        ("failed (exitcode: -11) local_rank: 2 (pid: 7) of binary: /usr/bin/python\n", [(-11, None, 7)]),
        (
            "failed (exitcode: -9) local_rank: 3 (pid: 100) of binary: python\n" + summary(3, -9),
            [(-9, 3, 100)],
        ),
        (
            "srun: error: node-b: tasks 1-3: Exited with exit code 1\n",
            [(1, 1, None), (1, 2, None), (1, 3, None)],
        ),
        (
            "[0]:\n  time: 2021-08-09_03:25:37\n  rank: 5 (local_rank: 1)\n  exitcode: -9 (pid: 61)\n"
            '  error_file: <N/A>\n  msg: "Process failed with exitcode -9"\n',
            [(-9, 5, 61)],
        ),
        ("srun: error: node-b: task 0: Out Of Memory\n", [(-9, 0, None)]),
        ("srun: error: node-b: task 5: Exited with exit code 137\n", [(-9, 5, None)]),
        ("[launch.py:321:sigkill_handler] ['python'] exits with return code = -7\n", [(-7, None, None)]),
        (
            "subprocess.CalledProcessError: Command '['a']' died with <Signals.SIGKILL: 9>.\n",
            [(-9, None, None)],
        ),
        ("Command '['python', 'train.py']' returned non-zero exit status 2.\n", [(2, None, None)]),
        (
            "mpirun noticed that process rank 1 with PID 9 on node a exited on signal 11 (Segmentation fault).\n",
            [(-11, 1, None)],
        ),
        (
            "prterun noticed that process rank 3 with PID 9 on node a exited on\nsignal 9 (Killed).\n",
            [(-9, 3, None)],
        ),
        (
            "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL\n",
            [(-9, 1, None)],
        ),
        ("Child process with PID 12 terminated with code -11. Terminating all others\n", [(-11, None, 12)]),
        ("Bus error (core dumped)\n", [(-7, None, None)]),
        ("run.sh: line 3:  4242 Killed                  python train.py\n", [(-9, None, 4242)]),
        ("      Exit Code:    137\n", [(-9, None, None)]),
        ("command terminated with exit code 137\n", [(-9, None, None)]),
        ("command terminated with exit code 1\n", [(1, None, None)]),
        ("trainer-1 exited with code 3\n", [(3, None, None)]),
        ("trainer-1 exited with code 0\n", [(0, None, None)]),
        ("  Process name: [[51208,1],2]\n  Exit code:    1\n", [(1, 2, None)]),
        ("killed the old job, exit code 0\n", []),
        ("=   RANK 3 PID 4711 RUNNING AT gpu-7\n=   KILLED BY SIGNAL: 9 (Killed)\n", [(-9, 3, 4711)]),
        ("=   RANK 3 PID 4711 RUNNING AT gpu-7\n=   EXIT CODE: 1\n", [(1, 3, 4711)]),
        (
            "=   PID 4711 RUNNING AT gpu-7\n=   EXIT CODE: 9\n"
            "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n",
            [(-9, None, 4711)],
        ),
        ("gpu-7.hsn: rank 3 died from signal 9\n", [(-9, 3, None)]),
        ("ERROR:composer.cli.launcher:Global rank 3 (PID 4403) exited with code 1\n", [(1, 3, 4403)]),
        ("MPI_ABORT was invoked on rank 4 in communicator W\nwith errorcode 2.\n", [(2, 4, None)]),
    ],
)
def test_ends(text, expected):
    assert [(one.code, one.rank, one.pid) for one in log(text).ended] == expected


def test_what_the_shell_says_is_of_the_rank_whose_output_it_is():
    assert [
        one.rank for one in log("3: run.sh: line 3:  42 Killed                  python train.py\n").ended
    ] == [3]


def test_processes_that_the_launcher_stopped():
    assert log(stopped(7, 8) + "[launch.py:315] Killing subprocess 9\n").stopped == {7, 8, 9}


@pytest.mark.parametrize(
    "line",
    [
        status(1, 12, 14, 11),
        "[rank1]:[E] [PG 0 (default_pg) Rank 1] Timeout at NCCL work: 12, last enqueued NCCL work: 14, "
        "last completed NCCL work: 11.\n",
        "[rank1]:[E] [PG 1 Rank 1] Exception (either an error or timeout) detected by watchdog at work: 12, "
        "last enqueued NCCL work: 14, last completed NCCL work: 11.\n",
    ],
)
def test_the_state_of_a_group(line):
    (known,) = log(wait(1, 12) + line).waits
    assert (known.rank, known.operation, known.sequence, known.seconds) == (1, "ALLREDUCE", 12, 600.037)
    assert known.enqueued == 14


def test_the_watchdog_of_an_older_torch():
    text = (
        "[E Process.cpp:485] [Rank 6] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE"
    )
    (known,) = log(f"{text}, Timeout(ms)=1800000) ran for 1800911 milliseconds before timing out.\n").waits
    assert (known.rank, known.sequence, round(known.seconds)) == (6, None, 1801)


def test_the_last_progress_bar_of_each_rank():
    bars = "".join(f"[rank{n % 2}]: {n}%|#| {n}/100 [00:{n:02}<01:00, 1.0it/s]\n" for n in range(40))
    assert [(one.line.rank, one.done, one.total, one.seconds) for one in log(bars).progress] == [
        (0, 38, 100, 38.0),
        (1, 39, 100, 39.0),
    ]


def test_a_bar_that_was_drawn_over_is_of_the_rank_before_the_first():
    (bar,) = log("3: 1%|#| 1/100 [00:01<01:00, 1.0it/s]\r 2%|#| 2/100 [00:02<01:00, 1.0it/s]\n").progress
    assert (bar.line.rank, bar.done) == (3, 2)


def test_the_watchdog_of_a_group_of_some_ranks():
    text = wait(1) + status(1, 12, 14, 11)
    (known,) = log(text.replace("[rank1]", "[rank5]")).waits
    assert (known.rank, known.sequence) == (5, 12)
