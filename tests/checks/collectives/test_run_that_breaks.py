"""DD301 and DD304 on a training run."""

import pytest

from ddpdoctor.cli.notes import unfinished
from ddpdoctor.judge import Verdict, merge
from ddpdoctor.model import Finding, Source
from ddpdoctor.recorder.events.files import FileEvent, Load, Save
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.trace import RankTrace
from ddpdoctor.trace.recording import Recording
from tests.support.hangs import script
from tests.support.judging import check as check_of
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recording, replace, where
from tests.support.recordings import trace as trace_of
from tests.support.traces import CLOSED_BY_PEER, broken, failed, healthy


def test_the_first_rank_to_fail_is_named_with_its_line():
    trace = broken(failed(0, CLOSED_BY_PEER), failed(1, "no such key", kind="KeyError"))
    finding = only_finding("DD304", Source.RUN, trace)
    assert finding.headline == "rank 1 failed with KeyError 'no such key' in the training run"
    assert finding.where is not None
    assert (finding.where.file, finding.where.line) == ("/jobs/train.py", 12)
    assert "KeyError: no such key" in finding.evidence[0].text
    assert "The errors of rank 0 afterwards" in finding.why


def test_an_error_of_the_program_is_no_consequence_of_another_rank():
    missing = failed(0, "module 'numpy' has no attribute 'product'", time=2.0, kind="AttributeError")
    unexpected = failed(1, "unexpected keyword argument 'verbose'", time=1.0, kind="TypeError")
    victims = [
        failed(2, CLOSED_BY_PEER, time=3.0),
        failed(3, "no such file", time=3.0, kind="FileNotFoundError"),
    ]
    first, second = check_of("DD304").examine_run(broken(missing, unexpected, *victims))
    assert (first.ranks, second.ranks) == ((1,), (0,))
    assert "errors of ranks 2-3 afterwards are consequences" in first.why
    assert second.headline.startswith("rank 0 failed with AttributeError")


@pytest.mark.parametrize(
    ("message", "causes"),
    [
        ("'NoneType' object is not subscriptable", ()),
        ("'Trainer' object has no attribute 'writer'", (f"RuntimeError: {CLOSED_BY_PEER}",)),
        (f"cannot parse {CLOSED_BY_PEER!r}", ()),
    ],
)
def test_an_error_about_what_a_failed_rank_did_not_send_is_a_consequence(message, causes):
    raised = Raised("TypeError", message, 2.0, at=where(12), causes=causes)
    victim = replace(failed(1, message, time=2.0, kind="TypeError"), recording=recording(1, raised=raised))
    trace = broken(failed(0, "no such key", time=1.0, kind="KeyError"), victim)
    finding = only_finding("DD304", Source.RUN, trace)
    assert finding.ranks == (0,)
    assert "The errors of rank 1 afterwards" in finding.why


def test_one_mistake_is_one_finding_whatever_rank_its_message_names():
    ranks = (failed(rank, f"no attribute 'shard_{rank}'", kind="AttributeError") for rank in range(4))
    assert only_finding("DD304", Source.RUN, broken(*ranks)).ranks == (0, 1, 2, 3)


def test_a_rank_without_an_exception_is_shown_by_its_last_lines():
    trace = broken(RankTrace(0, exit_code=3, output=("config not found",)), RankTrace(1))
    finding = only_finding("DD304", Source.RUN, trace)
    assert finding.headline == "rank 0 ended with exit status 3 in the training run"
    assert finding.evidence[0].text == "config not found"


def test_a_fault_of_the_rehearsal_is_its_limit_and_no_finding():
    raised = Raised("RuntimeError", "Invalid scalar type\nmore", 1.0, at=where(12), of_rehearsal=True)
    first = replace(failed(0, raised.message), recording=recording(0, raised=raised))
    trace = broken(first, failed(1, CLOSED_BY_PEER), rehearsal=True)
    reason = (
        "the rehearsal cannot do what the script asks for at train.py:12 (RuntimeError: Invalid scalar type)"
    )
    assert skipped("DD304", Source.RUN, trace).reason == reason
    assert unfinished(trace, None) == reason


def test_ranks_that_fail_alike_are_no_victims():
    trace = broken(*(failed(rank, "invalid syntax", kind="SyntaxError") for rank in range(3)))
    finding = only_finding("DD304", Source.RUN, trace)
    assert finding.headline == "ranks 0-2 failed with SyntaxError 'invalid syntax' in the training run"
    assert finding.ranks == (0, 1, 2)
    assert "consequence" not in finding.why


def test_a_script_that_refuses_its_arguments_is_told_where_they_stand():
    trace = broken(RankTrace(0, exit_code=2, output=("usage: train.py [-h] data", "train.py: error: data")))
    assert "ddpdoctor check --nproc 2 train.py ARGS..." in only_finding("DD304", Source.RUN, trace).fix


def test_an_exception_that_another_check_knows_is_dropped_where_that_one_found_it():
    error = RuntimeError("Expected to have finished reduction in the prior iteration")
    finding = only_finding("DD304", Source.RUN, broken(failed(0, str(error))))
    assert finding.explained_by == ("DD204",)
    cause = check_of("DD204")
    verdicts = [
        Verdict(cause, Source.RUN, (cause.fail("x", why="", fix=""),)),
        Verdict(check_of("DD304"), Source.RUN, (finding,)),
    ]
    assert [left.code for left in merge(verdicts).findings] == ["DD204"]


HALF = "Weights only load failed.\nUnsupported operand 80"
READ = Load("/jobs/last.pt", where(12), 20.0, 20.1, error=f"UnpicklingError: {HALF}")


def ended_by_a_read(written: str, error: str | None = READ.error, message: str = HALF) -> Finding:
    """Rank 0 writes a file, and rank 1 ends by an exception after its read of last.pt."""
    writer = replace(recording(0), saves=(Save(written, where(10), 19.0, 20.5),))
    reader = replace(recording(1), loads=(replace(READ, error=error),))
    last = failed(1, message, kind="_pickle.UnpicklingError")
    return only_finding(
        "DD304", Source.RUN, broken(RankTrace(0, recording=writer), replace(last, recording=reader))
    )


def test_a_read_that_fails_is_another_checks_where_a_race_for_the_file_was_found():
    assert ended_by_a_read("/jobs/last.pt").explained_by == ("DD401", "DD402", "DD020")


def test_what_torch_load_refuses_of_a_whole_file_is_a_failure_beside_a_race_for_it():
    refused = HALF.replace("operand 80", "operand 149")
    finding = ended_by_a_read("/jobs/last.pt", f"UnpicklingError: {refused}", refused)
    assert finding.explained_by == ()
    assert "weights_only=False" in finding.fix
    assert "weights_only=False" not in ended_by_a_read("/jobs/last.pt").fix


def test_a_read_that_fails_of_a_file_that_no_rank_wrote_is_a_failure():
    assert ended_by_a_read("/jobs/other.pt").explained_by == ()
    assert ended_by_a_read("/jobs/last.pt", error=None).explained_by == ()
    assert ended_by_a_read("/jobs/last.pt", error="FileNotFoundError: caught").explained_by == ()


def ended_over_a_path(message: str) -> tuple[str, ...]:
    """What knows better why rank 1 failed, where rank 0 wrote last.pt.tmp and made a folder."""
    made = (FileEvent("mkdir", "/jobs/run", 19.0, where(9)), FileEvent("lock", "/jobs/x", 19.0, where(9)))
    writer = replace(recording(0), saves=(Save("/jobs/last.pt.tmp", where(10), 19.0, 20.5),), files=made)
    last = replace(failed(1, message, kind="OSError"), recording=recording(1))
    return only_finding("DD304", Source.RUN, broken(RankTrace(0, recording=writer), last)).explained_by


def test_an_error_about_what_another_rank_made_or_wrote_is_another_checks():
    known = ("DD401", "DD402", "DD020")
    assert ended_over_a_path("[Errno 2] No such file: 'last.pt.tmp' -> 'last.pt'") == known
    assert ended_over_a_path("[Errno 17] File exists: './run'") == known
    assert ended_over_a_path("[Errno 2] No such file: 'x'") == ()
    assert ended_over_a_path("[Errno 2] No such file: 'config.json'") == ()
    assert ended_over_a_path("no entry 'run'") == ()


def test_a_launcher_that_fails_by_itself_is_found():
    finding = only_finding("DD304", Source.RUN, broken(RankTrace(0), RankTrace(1), log=("no rendezvous",)))
    assert finding.headline == "the launcher ended with exit status 1, and ranks 0-1 did not reach the end"
    assert finding.evidence[0].text == "no rendezvous"


def test_a_killed_rank_is_another_checks():
    trace = broken(failed(0, CLOSED_BY_PEER), RankTrace(1, exit_code=-9))
    assert skipped("DD304", Source.RUN, trace).reason == "rank 1 of the training run broke"


def test_a_rank_that_gloo_ended_was_in_another_collective():
    said = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
        "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 34 vs 4. Received data",
    )
    recordings = trace_of({0: recording(0), 1: recording(1)}).ranks
    aborted = replace(recordings[1], finished=False, exit_code=-6, output=said)
    finding = only_finding("DD302", Source.RUN, broken(recordings[0], aborted))
    assert finding.headline == "rank 1 received 34 bytes in a collective that expects 4"
    assert finding.ranks == (1,)
    assert "DD303" in finding.explained_by
    assert finding.where is None
    calls = [
        Collective(5.0, where(line), "all_reduce", shape=shape, dtype="float32")
        for line, shape in ((41, ()), (43, (9,)))
    ]
    called = replace(aborted, recording=replace(recording(1), collectives=tuple(calls)))
    assert only_finding("DD302", Source.RUN, broken(recordings[0], called)).where == where(41)
    killed = replace(aborted, output=("Aborted",))
    assert skipped("DD302", Source.RUN, broken(recordings[0], killed)).reason


def test_a_healthy_run_passes():
    assert passed("DD304", Source.RUN, healthy()).text == "2 ranks of the training run ended well in 4.0 s"
    assert passed("DD301", Source.RUN, healthy()).text == "no rank kept the others waiting in 4.0 s"


def test_a_hang_without_stacks_blames_nobody():
    finding = only_finding("DD301", Source.RUN, broken(RankTrace(0), RankTrace(1), timed_out=True))
    assert finding.headline == "ranks 0-1 of the training run did not end within 4 s"
    assert finding.where is None


def test_a_run_that_failed_is_no_hang():
    trace = broken(failed(0, "no such key"))
    assert skipped("DD301", Source.RUN, trace).reason == "rank 0 of the training run broke"


def test_the_time_limit_of_the_whole_check_is_nobodys_fault():
    trace = broken(RankTrace(0), RankTrace(1), timed_out=True, out_of_time=True)
    for code in ("DD301", "DD304", "DD012"):
        assert skipped(code, Source.RUN, trace).reason == "the time limit was reached"


def test_frames_of_torchs_own_warnings_are_no_evidence():
    warned = (
        "config not found",
        "[W1121 TCPStore.cpp:125] recvValue failed on SocketImpl(fd=3)",
        "frame #0: c10::Error::Error(c10::SourceLocation) + 0x9d (0x7f)",
        "[rank0]: frame #1: <unknown function> + 0x6c (0x7f in libtorch_cpu.so)",
    )
    finding = only_finding("DD304", Source.RUN, broken(RankTrace(0, exit_code=3, output=warned)))
    assert [one.text for one in finding.evidence] == ["config not found"]


def test_a_timeout_of_gloo_is_that_of_a_victim():
    waited = "[unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"
    trace = broken(failed(0, waited, time=1.0), failed(1, "no such key", time=4.0, kind="KeyError"))
    finding = only_finding("DD304", Source.RUN, trace)
    assert finding.headline == "rank 1 failed with KeyError 'no such key' in the training run"


def test_a_run_that_was_stopped_before_anybody_joined():
    alone = RankTrace(0, stack=(script(12),), recording=Recording())
    finding = only_finding("DD301", Source.RUN, broken(alone, timed_out=True))
    assert finding.headline == "no rank had joined a process group when the run was stopped after 4 s"
    assert "main (train.py:12)" in finding.evidence[0].text


def test_a_run_stopped_after_everybodys_end_hung_nowhere():
    assert passed("DD301", Source.RUN, healthy(timed_out=True)).text.startswith(
        "every rank had reached its end"
    )


def test_who_was_stopped_by_us_was_killed_by_nobody_else():
    trace = broken(RankTrace(0, exit_code=-15), RankTrace(1, exit_code=-15), timed_out=True)
    assert skipped("DD012", Source.RUN, trace).reason == "the training run did not end within 4 s"


def test_sigterm_on_every_rank_came_from_outside():
    finding = only_finding(
        "DD012", Source.RUN, broken(RankTrace(0, exit_code=-15), RankTrace(1, exit_code=-15))
    )
    assert finding.headline == "ranks 0-1 were killed by SIGTERM in the training run"
    assert finding.ranks == (0, 1)
