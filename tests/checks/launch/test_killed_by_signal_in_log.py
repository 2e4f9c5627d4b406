import pytest

from ddpdoctor.model import Level, Source
from tests.support.judging import only_finding
from tests.support.logs import TRAINING, explained, leaves_alone, log, raised, summary

NAMED = [
    (
        "[W] torch.distributed.elastic.agent.server.api: Received 15 death signal, shutting down "
        "workers\nslurmstepd: error: *** STEP 1.0 ON node-a CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n",
        "the launcher was ended by SIGTERM, which the scheduler sent: CANCELLED AT 2026-01-02T03:04:05 DUE TO "
        "TIME LIMIT",
    ),
    (
        "W0102 03:04:05 1 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 12 closing "
        "signal SIGHUP\n"
        + raised(
            0, "torch.distributed.elastic.multiprocessing.api.SignalException", "Process 9 got signal: 1"
        ),
        "the launcher was ended by SIGHUP",
    ),
    (summary(2, -11), "rank 2 was killed by SIGSEGV"),
    ("Fatal Python error: Segmentation fault\n" + summary(2, -11), "rank 2 was killed by SIGSEGV"),
    (summary(1, -9), "rank 1 was killed by SIGKILL"),
    ("srun: error: node-b: task 3: Segmentation fault (core dumped)\n", "rank 3 was killed by SIGSEGV"),
    (
        "=>> PBS: job killed: walltime 86432 exceeded limit 86400\n",
        "the scheduler ended the job: PBS: job killed: walltime 86432 exceeded limit 86400",
    ),
    (
        "  Normal  Preempted  2m  default-scheduler  Preempted by pod 77aa on node gpu-7\n",
        "the scheduler ended the job: Preempted by pod 77aa on node gpu-7",
    ),
    (
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\nExited with exit code 140.\n",
        "the scheduler ended the job: TERM_RUNLIMIT",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD012", Source.LOG, log(text)).headline == headline


test_what_is_another_matter_is_not = leaves_alone(
    "DD012",
    [
        summary(1, 1),
    ],
)


def test_a_worker_of_the_dataloader():
    text = raised(3, "RuntimeError", "DataLoader worker (pid 412) is killed by signal: Segmentation fault.")
    finding = only_finding("DD012", Source.LOG, log(text))
    assert finding.headline == "a DataLoader worker was killed by SIGSEGV"


def test_the_scheduler_outranks_the_signals_that_it_sent():
    text = (
        "slurmstepd: error: *** JOB 7 ON node-a CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n"
        "srun: error: node-a: tasks 0-3: Terminated\n"
    )
    (finding,) = explained(text)
    assert (
        finding.headline == "the scheduler ended the job: CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT"
    )


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("[rank3]: Fatal Python error: Segmentation fault", "rank 3 was killed by SIGSEGV"),
        ("[rank3]: *** SIGSEGV received at time=1737961028 on cpu 12 ***", "rank 3 was killed by SIGSEGV"),
        ("[node-a:5275 :0:5311] Caught signal 7 (Bus error: no address)", "a process was killed by SIGBUS"),
        ("[node-a:05275] Signal: Aborted (6)", "a process was killed by SIGABRT"),
    ],
)
def test_a_process_that_tells_of_its_own_signal(line, name):
    assert explained(line + "\n")[0].headline == name
    assert explained(line + "\n" + 8 * TRAINING) == ()
    assert explained(line + "\n" + summary(2, -11))[0].headline == "rank 2 was killed by SIGSEGV"


@pytest.mark.parametrize(
    "line",
    [
        "Caught signal 10 (SIGUSR1), saving checkpoint",
        "Caught signal 11 (SIGSEGV), ignored",
        "[node-a:5275 :0:5311] Caught signal 15 (Terminated)",
        "*** SIGTERM received at time=1737961028 on cpu 3 ***",
    ],
)
def test_a_signal_that_a_process_may_handle_is_no_death(line):
    assert explained(f"{TRAINING}{line}\nsaved checkpoint\n{TRAINING}") == ()


def test_the_abort_of_a_watchdog_is_none_of_a_fault():
    watchdog = (
        "[rank0]:[E102 03:04:05.000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 "
        "milliseconds before timing out.\n"
    )
    (finding,) = explained(watchdog + "[rank0]: Fatal Python error: Aborted\n")
    assert finding.headline.startswith("rank 0 waited in ALLREDUCE number 5")


_CANCELLED = "slurmstepd: error: *** STEP 7.0 ON node-a CANCELLED AT 2026-01-02T03:04:05{} ***\n"
_SENT = "W0102 03:04:05 1 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 12 closing signal {}\n"


@pytest.mark.parametrize(
    ("end", "level"),
    [
        (_SENT.format("SIGINT"), Level.WARN),
        (_SENT.format("SIGHUP"), Level.FAIL),
        (_CANCELLED.format(""), Level.WARN),
        (_CANCELLED.format("") + "srun: error: node-a: tasks 0-3: Terminated\n", Level.WARN),
        (_CANCELLED.format(" DUE TO TIME LIMIT"), Level.FAIL),
        (raised(0, "KeyError", "'labels'") + _SENT.format("SIGINT"), Level.FAIL),
        (summary(1, -11) + _CANCELLED.format(""), Level.FAIL),
    ],
)
def test_a_job_that_a_person_ended_did_not_fail(end, level):
    (finding,) = explained(3 * TRAINING + end)
    assert finding.level is level
