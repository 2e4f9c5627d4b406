"""What a report says of the run itself."""

from pathlib import Path

import pytest

from ddpdoctor import registry
from ddpdoctor.cli.notes import notes
from ddpdoctor.judge import NotMeasured, Verdict, judge
from ddpdoctor.launch import Imagined
from ddpdoctor.model import Source
from ddpdoctor.recorder.events.data import Integers, LoaderPass
from ddpdoctor.trace import RankTrace, Shortened, Trace
from ddpdoctor.trace.record import Record
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.written import WouldWrite
from tests.support.recordings import recorded, replace
from tests.support.traces import healthy


@pytest.mark.parametrize(("real", "told"), [((0, 1), False), ((0, 1, 63), True)])
def test_an_imaginary_rank_wrote_nothing_on_another_host(real, told):
    trace = replace(recorded(2), imagined=Imagined(64, 8, real), written=WouldWrite())
    assert any(note.startswith("no record tells where") for note in notes(trace, [], None, Path())) == told


class Undecided(registry.Check):
    """A check that skips with a reason of its own."""

    code, name, family, title = "DD999", "undecided", registry.all_checks()[0].family, "it is decided"

    def __init__(self, reason: str, cut_short: bool) -> None:
        self.skip = NotMeasured(reason, cut_short=cut_short)

    def examine_run(self, trace: object) -> None:
        raise self.skip


def verdicts(reason: str, *, cut_short: bool) -> list[Verdict]:
    return judge(Source.RUN, [Undecided(reason, cut_short)], healthy(), print)


@pytest.mark.parametrize("reason", ["there was one epoch", "the passes were cut short; see --full"])
def test_what_a_longer_run_may_decide_is_named_whatever_its_reason_says(reason):
    trace = healthy(shortened=Shortened(8, 1))
    (said,) = notes(trace, verdicts(reason, cut_short=True), None, Path())
    assert said.startswith(
        "cut short: 1 pass over DataLoaders to 8 batches; not decided because of it: DD999"
    )
    (said,) = notes(trace, verdicts(reason, cut_short=False), None, Path())
    assert "not decided" not in said


def test_the_jobs_of_a_launch_line_are_listed():
    ranks = tuple(RankTrace(rank, recording=Recording(script="/job/evaluate.py")) for rank in range(4))
    note, *_ = notes(Trace(ranks, before=(healthy(),)), [], None, Path())
    jobs = "a script on 2 ranks, evaluate.py on 4 ranks"
    assert note == f"the launch line ran 2 jobs one after the other, and each was judged: {jobs}"


def test_ranks_whose_sample_indices_did_not_come_are_named(tmp_path):
    def rank(number, *, came):
        record = Record.made(LoaderPass(1, 0, 0, None, 0.0, indices=Integers(100, offset=0, type="i")))
        record.file = tmp_path / f"{number}-1.jsonl"
        if came:
            record.file.with_suffix(".numbers").write_bytes(bytes(400))
        return RankTrace(number, recording=Recording(record=record))

    trace = Trace((rank(0, came=True), rank(1, came=False), rank(2, came=False)))
    (note,) = notes(trace, [], None, Path())
    assert note.startswith("the sample indices of ranks 1-2 are missing ")
