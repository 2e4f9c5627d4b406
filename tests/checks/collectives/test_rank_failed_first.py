from dataclasses import replace

import pytest

from ddpdoctor.blame.frames import Failure
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.launch import Launch
from ddpdoctor.model import Source
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.trace import RankTrace, Trace
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recording, where
from tests.support.recordings import replace as changed
from tests.support.traces import broken

BROKEN = "rank 1 failed in collectives"


def rank(number: int, **fields: object) -> RankRecord:
    return RankRecord(number, joined=True, current="collectives", **fields)  # type: ignore[arg-type]


def record(*ranks: RankRecord, stage: Stage = Stage.MEASURE) -> GroupRecord:
    return GroupRecord(Launch(), ranks, stage=stage, broken=BROKEN)


def failure(kind: str, message: str, time: float) -> Failure:
    return Failure(kind, message, f"Traceback\n{kind}: {message}", time)


def test_the_victim_that_spoke_first_is_not_blamed():
    victim = rank(0, failure=failure("RuntimeError", "[pair.cc:553] Connection closed by peer", 1.0))
    cause = rank(1, failure=failure("ValueError", "image 17 is broken", 2.0))
    finding = only_finding("DD304", Source.GROUP, record(victim, cause))
    assert finding.headline == "rank 1 failed with ValueError 'image 17 is broken' in collectives"
    assert finding.ranks == (1,)


def test_a_rank_that_exits_early_is_named_with_its_status():
    finding = only_finding("DD304", Source.GROUP, record(rank(0), rank(1, died=3.0, exit_code=7)))
    assert finding.headline == "rank 1 ended with exit status 7 in collectives"


def test_a_signal_is_another_disease():
    assert skipped("DD304", Source.GROUP, record(rank(0), rank(1, died=3.0, exit_code=-9))).reason == BROKEN


def test_a_disk_that_is_full_is_another_disease():
    one = rank(0, failure=failure("OSError", "No space left on device", 1.0))
    full = GroupRecord(Launch(), (one,), stage=Stage.MEASURE, broken=BROKEN, unwritable=True)
    assert skipped("DD304", Source.GROUP, full).reason == BROKEN


def test_a_group_that_did_not_meet_is_another_disease():
    one = RankRecord(0, failure=failure("RuntimeError", "no route", 1.0))
    assert skipped("DD304", Source.GROUP, record(one, stage=Stage.JOIN)).reason == BROKEN


def test_the_end_of_every_rank_passes():
    assert "reached their end" in passed("DD304", Source.GROUP, GroupRecord(Launch(), (rank(0),))).text


def test_the_exit_status_of_a_launcher_whose_job_slurm_ended_is_none_of_a_rank():
    run = broken(RankTrace(0, exit_code=137))
    only_finding("DD304", Source.RUN, run)
    skipped("DD304", Source.RUN, replace(run, log=("srun: error: node1: task 3: Out Of Memory",)))


def test_a_command_that_ends_before_it_starts_a_rank_is_none() -> None:
    output = ("run.sh: line 2: torchrun: command not found",)
    finding = only_finding("DD304", Source.RUN, broken(RankTrace(0, exit_code=127, output=output)))
    assert finding.headline == (
        "the command ended with exit status 127, and no process of it was seen to import torch"
    )
    assert (finding.ranks, finding.evidence[0].text) == ((), output[0])
    assert "activate the environment" in finding.fix
    usage = RankTrace(0, exit_code=2, output=("usage: finetune.py [-h] --data DATA",))
    fix = only_finding("DD304", Source.RUN, broken(usage)).fix
    assert fix.endswith("the script's arguments after it: ddpdoctor check --nproc 2 finetune.py ARGS...")


def test_the_process_that_started_the_ranks_may_fail_after_they_have_ended():
    raised = Raised("AssertionError", "Process group cannot be None", 30.0, at=where(57, "cleanup"))
    parent = changed(recording(0), pid=99, raised=raised)
    rank = RankTrace(0, finished=True, recording=changed(recording(0), parent=99))
    finding = only_finding("DD304", Source.RUN, Trace((rank,), status=1, others=(parent,)))
    assert (finding.where, finding.ranks) == (raised.at, ())
    assert "the process that started the ranks failed with" in finding.headline
    assert "AssertionError: Process group cannot be None" in finding.headline
    passed("DD304", Source.RUN, Trace((rank,), others=(parent,)))
    passed("DD304", Source.RUN, Trace((rank,), status=3, others=(changed(parent, pid=98),)))


@pytest.mark.parametrize(
    "type", ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "ProcessExitedException"]
)
def test_a_launcher_that_tells_of_an_abort_after_the_end_of_a_script_did_not_fail(type):
    raised = Raised(type, "train.py FAILED: Signal 6 (SIGABRT) received by PID 7", 30.0)
    parent = changed(recording(0), pid=99, raised=raised)
    rank = RankTrace(0, finished=True, recording=changed(recording(0), parent=99))
    passed("DD304", Source.RUN, Trace((rank,), status=1, others=(parent,)))


def test_ranks_that_met_in_the_store_of_the_attempt_before():
    message = (
        "Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection refused"
    )
    restarted = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for environ, named in (
        (restarted, True),
        ({**restarted, "TORCHELASTIC_RESTART_COUNT": "0"}, False),
        ({**restarted, "TORCHELASTIC_USE_AGENT_STORE": "False"}, False),
    ):
        failed = RankTrace(
            1,
            failure=failure("RuntimeError", message, 1.0),
            exit_code=1,
            recording=recording(1, environ=environ),
        )
        finding = only_finding("DD304", Source.RUN, broken(RankTrace(0), failed))
        assert ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in finding.fix) is named
        assert ("the store of the attempt before" in finding.why) is named
