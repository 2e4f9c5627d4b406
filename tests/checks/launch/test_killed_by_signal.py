import dataclasses
import signal

import pytest

from ddpdoctor.blame.frames import Failure
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.launch import Launch
from ddpdoctor.model import Source
from ddpdoctor.trace import RankTrace
from tests.support.judging import only_finding, passed, skipped
from tests.support.traces import CLOSED_BY_PEER, broken, failed, finished, healthy


def killed_group(exit_code: int | None = -11, **fields: object) -> GroupRecord:
    ranks = (
        RankRecord(0, joined=True),
        RankRecord(1, joined=True, died=1.0, exit_code=exit_code, step="barrier"),
    )
    return GroupRecord(Launch(), ranks, stage=Stage.MEASURE, broken="rank 1 died in weights", **fields)


def test_the_killed_rank_is_named_and_its_victims_are_not():
    trace = broken(failed(0, CLOSED_BY_PEER), RankTrace(1, exit_code=-9, output=("step 12",)))
    finding = only_finding("DD012", Source.RUN, trace)
    assert finding.headline == "rank 1 was killed by SIGKILL in the training run"
    assert finding.ranks == (1,)
    assert "out-of-memory" in finding.why
    assert "The errors of rank 0 afterwards are consequences" in finding.why
    assert finding.evidence[0].text == "step 12"


def test_a_rank_that_was_terminated_is_named_and_the_victim_that_spoke_first_is_not():
    victim = RankRecord(0, joined=True, failure=Failure("RuntimeError", CLOSED_BY_PEER, "", 1.0))
    terminated = RankRecord(1, joined=True, died=2.0, exit_code=-15, step="barrier")
    group = GroupRecord(Launch(), (victim, terminated), stage=Stage.MEASURE, broken="rank 1 died in weights")
    finding = only_finding("DD012", Source.GROUP, group)
    assert finding.headline == "rank 1 was killed by SIGTERM in barrier"


@pytest.mark.parametrize("number", [*signal.Signals, 40])
def test_every_signal_has_a_cause_and_a_fix(number):
    finding = only_finding("DD012", Source.RUN, broken(RankTrace(0, exit_code=-int(number))))
    assert finding.why
    assert finding.fix


@pytest.mark.parametrize("reason", ["TIME LIMIT", "PREEMPTION"])
def test_a_scheduler_that_ends_the_job_says_why(reason):
    said = f"slurmstepd: error: *** STEP 1.0 ON node1 CANCELLED AT 2026-11-23T12:00:00 DUE TO {reason} ***"
    trace = dataclasses.replace(broken(RankTrace(0, exit_code=-15)), log=(said,))
    finding = only_finding("DD012", Source.RUN, trace)
    assert finding.headline == f"the scheduler ended the job: DUE TO {reason}"
    assert finding.evidence[0].text == said


def test_a_signal_in_the_live_group():
    finding = only_finding("DD012", Source.GROUP, killed_group())
    assert finding.headline == "rank 1 was killed by SIGSEGV in barrier"


def test_no_signal_passes():
    assert passed("DD012", Source.RUN, healthy()).text == "no signal ended a rank of the training run"
    group = GroupRecord(Launch(), (RankRecord(0, finished=True),))
    assert passed("DD012", Source.GROUP, group).text == "no signal ended a rank of the live group"


def test_an_abort_after_the_end_is_not_found():
    aborted = dataclasses.replace(finished(1), exit_code=-6)
    passed("DD012", Source.RUN, broken(finished(0), aborted))
    group = GroupRecord(Launch(), (RankRecord(0, finished=True, exit_code=-6),))
    passed("DD012", Source.GROUP, group)


def test_ranks_that_the_launcher_ended_are_not_found():
    trace = broken(RankTrace(0, exit_code=-15), failed(1, "no such key"))
    assert skipped("DD012", Source.RUN, trace).reason == "rank 1 of the training run broke"


def test_a_rank_that_the_launcher_ended_after_victims_of_one_that_had_left_is_not_found():
    trace = broken(finished(0), RankTrace(1, exit_code=-15), failed(2, CLOSED_BY_PEER))
    assert skipped("DD012", Source.RUN, trace).reason == "rank 2 of the training run broke"


@pytest.mark.parametrize("exit_code", [None, 0, 3])
def test_a_rank_that_ended_by_itself_was_not_killed(exit_code):
    assert skipped("DD012", Source.GROUP, killed_group(exit_code)).reason == "rank 1 died in weights"


ABORTED = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 452 vs 4.",
)


def test_an_abort_of_gloos_is_explained_by_what_brought_the_ranks_apart():
    trace = broken(failed(0, CLOSED_BY_PEER), RankTrace(1, exit_code=-6, output=ABORTED))
    assert "DD303" in only_finding("DD012", Source.RUN, trace).explained_by
    trace = broken(failed(0, CLOSED_BY_PEER), RankTrace(1, exit_code=-6, output=("free(): invalid size",)))
    assert only_finding("DD012", Source.RUN, trace).explained_by == ()
