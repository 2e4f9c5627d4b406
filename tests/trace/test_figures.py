"""The sections of a page, from runs as plain data."""

import itertools

import pytest

from ddpdoctor.blame.hang_snapshot import HangSnapshot
from ddpdoctor.cli.options import ReportOptions
from ddpdoctor.cli.page_sections import with_sections
from ddpdoctor.figures import MOST_ROWS, Stacks, Tone, WaitsFor
from ddpdoctor.hang.flight.folder import read_folder
from ddpdoctor.model import Finding, Level
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Backward, Collective, Forward
from ddpdoctor.redact import clean
from ddpdoctor.report import Format
from ddpdoctor.report.html import render
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.figures import sections
from tests.report.sample import EVERYTHING
from tests.support.flight import ring, waiting, write_job
from tests.support.hangs import backward, collective, hung, queue, snapshot
from tests.support.loading import drawing, evaluating
from tests.support.recordings import recorded, recording, replace, step, where
from tests.support.training import diverging

PAGE = ReportOptions([Format.HTML], ["out/report.html"])


def figure(trace, title, culprits=()):
    """The figure whose title begins so; None where there is none."""
    figures = itertools.chain.from_iterable(section.figures for section in sections(trace, culprits))
    return next((each for each in figures if each.title.startswith(title)), None)


def text(trace):
    return " ".join(section.text for section in sections(trace))


def of_tone(strips, rank, tone):
    """Seconds, or whatever the unit is, of a row."""
    return sum(
        span.end - span.begin for span in strips.rows[rank].spans if span.tone is tone and span.shade == 1
    )


def timed(rank, own, slow=0, seconds=0.1):
    """A step whose backward waits for the slow rank."""
    waits = 0.0 if rank == slow else seconds
    phases = {"total": 0.05 + seconds, "forward": 0.02, "backward": 0.02, "step": 0.01, "waits": waits}
    backwards = (Backward(own.index + 0.5, where(49), (0,), 1, seconds=0.02 + waits),)
    return replace(own, phases=phases, backwards=backwards)


def with_straggler(ranks=3, steps=9):
    def change(rank, one):
        numbered = (step(index, time=float(index)) for index in range(steps))
        return replace(one, steps=tuple(timed(rank, own) for own in numbered), step_count=steps, passes=())

    return recorded(ranks, change)


def test_what_backward_takes_longer_than_on_the_fastest_rank_is_waiting():
    timeline = figure(with_straggler(), "What each rank did")
    assert [of_tone(timeline, rank, Tone.WAIT) for rank in range(3)] == pytest.approx([0.0, 0.9, 0.9])
    assert "waiting for other ranks" in " ".join(span.about for span in timeline.rows[1].spans)


def test_a_typical_step_shows_whose_own_code_the_others_wait_for():
    parts = figure(with_straggler(), "Where a training step goes")
    assert of_tone(parts, 0, Tone.OTHER) == pytest.approx(0.1)
    assert of_tone(parts, 1, Tone.WAIT) == pytest.approx(0.1)
    assert parts.rows[0].note == "150.0 ms"


def test_a_rehearsal_shows_no_times_of_steps():
    rehearsed = replace(with_straggler(), rehearsal=True)
    assert figure(rehearsed, "Where a training step goes") is None
    assert figure(rehearsed, "What each rank did").note.startswith("Times are those of the rehearsal")


def test_saves_collectives_and_ends_are_in_the_timeline():
    def change(rank, one):
        calls = (Collective(3.0, where(61), "all_reduce", number=0, seconds=0.5 if rank else 0.1),)
        saves = (Save("/a.pt", where(5), 50.0, 53.0),) if rank == 0 else ()
        raised = Raised("builtins.KeyError", "'x'", 99.0) if rank else None
        return replace(one, collectives=calls, saves=saves, raised=raised)

    timeline = figure(recorded(2, change), "What each rank did")
    assert of_tone(timeline, 0, Tone.FILES) == pytest.approx(3.0)
    assert of_tone(timeline, 1, Tone.WAIT) == pytest.approx(0.4)
    assert [row.note for row in timeline.rows] == ["", "raised KeyError"]


def test_a_long_start_is_left_out():
    def change(rank, one):
        begun = replace(
            one.steps[0],
            forwards=(Forward(100.0, where(48), 0, seconds=1.0),),
            backwards=(),
            optimizer_steps=(),
        )
        return replace(one, steps=(begun,), passes=(), exit=replace(one.exit, time=110.0), last=110.0)

    timeline = figure(recorded(2, change), "What each rank did")
    assert timeline.end == pytest.approx(10.0)
    assert "100.0 s before are left out" in timeline.note


def test_of_a_long_run_the_end_is_shown():
    def change(rank, one):
        steps = tuple(step(index, time=float(index)) for index in range(4000))
        timed_steps = tuple(
            replace(own, backwards=(replace(own.backwards[0], seconds=0.4),)) for own in steps
        )
        return replace(one, steps=timed_steps, step_count=4000, passes=(), last=4000.0)

    timeline = figure(recorded(2, change), "What each rank did")
    assert all(1000 < len(row.spans) <= 2000 for row in timeline.rows)
    assert timeline.rows[0].spans[-1].about.startswith("optimizer's step 3999")
    assert "before are left out" in timeline.note


def test_of_many_ranks_those_that_findings_name_are_shown():
    timeline = figure(recorded(128), "What each rank did", culprits=[77])
    assert len(timeline.rows) <= MOST_ROWS
    assert [row.name for row in timeline.rows if row.marked] == ["rank 77"]
    assert f"{len(timeline.rows)} of 128 ranks" in timeline.note


def test_a_finding_about_every_rank_marks_none():
    timeline = figure(recorded(2), "What each rank did", culprits=[0, 1])
    assert not any(row.marked for row in timeline.rows)


def test_samples_drawn_once_more_than_once_and_never():
    trace = recorded(2, lambda rank, one: drawing(one, (0, 1, 2, 3), (rank, 4, 5, 6 + rank)))
    coverage = figure(trace, "Samples drawn")
    first, second = coverage.rows
    assert [span.end - span.begin for span in first.spans] == [4, 12]
    assert first.note == "4 drawn more than once, 12 not drawn"
    assert [(span.tone, span.end - span.begin) for span in second.spans] == [
        (Tone.GOOD, 4),
        (Tone.BAD, 2),
        (Tone.OTHER, 10),
    ]
    assert coverage.note == "Every rank has 1 batch in a pass."


def remade(rank, own):
    """A loader made anew on the same line for each of two passes."""
    own = drawing(own, (0, 1, 2, 3), (4, 5, 6, 7))
    first, second = own.passes
    loaders = (own.loaders[0], replace(own.loaders[0], index=1))
    return replace(own, loaders=loaders, passes=(first, replace(second, loader=1, number=0)))


def test_passes_over_loaders_that_are_made_anew_are_counted_on():
    assert [row.name for row in figure(recorded(2, remade), "Samples drawn").rows] == ["pass 0", "pass 1"]


def test_loaders_of_one_line_for_training_and_evaluation_are_shown_apart():
    def on_one_line(rank, own):
        own = evaluating(drawing(own, (rank, rank + 2)), (rank, rank + 2))
        first, held_out = own.loaders
        return replace(own, loaders=(first, replace(held_out, at=first.at, dataset=first.dataset)))

    trace = recorded(2, on_one_line)
    for kind in ("training", "evaluation"):
        assert [row.name for row in figure(trace, f"Samples drawn in {kind}").rows] == ["pass 0"]


def test_the_same_order_in_each_pass_is_told():
    trace = recorded(2, lambda rank, one: drawing(one, (rank, 2 + rank), (rank, 2 + rank)))
    assert figure(trace, "Samples drawn").rows[1].note.endswith("same order as before")


def test_an_order_that_repeats_is_drawn_as_failed_ribbons():
    def passes(*orders, shuffle=True):
        def change(rank, one):
            sampler = replace(one.loaders[0].sampler, shuffle=shuffle)
            own = drawing(one, *([rank + 2 * index for index in order] for order in orders), sampler=sampler)
            return own

        return figure(recorded(2, change), "Order of the samples")

    same = passes((2, 0, 1), (2, 0, 1), (2, 0, 1))
    assert [[(span.begin, span.shade) for span in row.spans] for row in same.rows][1:] == [
        [(span.begin, span.shade) for span in same.rows[0].spans]
    ] * 2
    assert {span.tone for row in same.rows for span in row.spans} == {Tone.BAD}
    late = passes((2, 0, 1), (2, 0, 1), (0, 1, 2))
    assert [row.spans[0].tone for row in late.rows] == [Tone.BAD, Tone.BAD, Tone.GOOD]
    assert passes((2, 0, 1), (0, 1, 2)) is None
    assert passes((0, 1, 2), (0, 1, 2), shuffle=False) is None


def with_loss(rank, own, unlike=None):
    value = 1.0 + (rank + 1) / 1000 if rank != unlike else 7.0
    return replace(own, backwards=tuple(replace(each, value=value) for each in own.backwards))


def stuck(culprit=2, size=4):
    """All ranks wait in backward, but one that waits for its queue."""
    trailing = TrainingStep(4, 4.0, forwards=(Forward(4.2, where(48), 0),))
    own = {
        rank: replace(recording(rank, size), trailing=trailing, exit=None, last=5.0) for rank in range(size)
    }
    stacks = {rank: queue(60) if rank == culprit else backward(49) for rank in range(size)}
    return hung(snapshot(stacks), own)


def test_a_hang_shows_who_waits_for_whom():
    graph = figure(stuck(), "Who waits for whom")
    assert isinstance(graph, WaitsFor)
    assert [(node.ranks, node.culprit, node.waits_for) for node in graph.nodes] == [
        ("ranks 0-1, 3", False, (1,)),
        ("rank 2", True, ()),
    ]
    assert graph.nodes[0].state == "wait in backward at train.py:49"


def test_ranks_that_wait_for_each_other_are_a_circle():
    stacks = {0: collective("all_gather_object", 19), 1: backward(33)}
    graph = figure(hung(snapshot(stacks)), "Who waits for whom")
    assert {node.waits_for for node in graph.nodes} == {(0,), (1,)}


def test_a_hang_shows_the_stacks_as_one_tree():
    stacks = figure(stuck(), "Stacks of all ranks")
    assert isinstance(stacks, Stacks)
    branches = [(call.ranks, call.marked) for call in stacks.calls if call.ranks]
    assert branches == [("ranks 0-1, 3", False), ("rank 2", True)]
    assert [call.text for call in stacks.calls if call.of_script] == [
        "main (train.py:49)",
        "main (train.py:60)",
    ]


def test_a_hang_lasts_to_the_end_of_the_timeline():
    timeline = figure(stuck(), "What each rank did")
    last = [row.spans[-1] for row in timeline.rows]
    assert [span.tone for span in last] == [Tone.WAIT, Tone.WAIT, Tone.BAD, Tone.WAIT]
    assert all(span.end == pytest.approx(timeline.end) for span in last)
    assert last[2].about == "rank 2 waits in Queue.get at train.py:60"
    assert timeline.end >= 7.0


def test_a_rank_stands_still_since_the_last_that_is_known_of_it():
    job = stuck()
    ranks = tuple(replace(each, recording=replace(each.recording, last=90.0)) for each in job.ranks)
    last = [row.spans[-1] for row in figure(replace(job, ranks=ranks), "What each rank did").rows]
    assert [round(span.end - span.begin) for span in last] == [99] * 4


def test_dumps_alone_show_who_waits_for_whom(tmp_path):
    write_job(tmp_path, 8, lambda rank: ring(1, 3) + ([] if rank == 5 else [waiting(4)]))
    trace = Trace((), snapshot=HangSnapshot(flight=read_folder(tmp_path).ranks))
    graph = figure(trace, "Who waits for whom")
    assert [node.ranks for node in graph.nodes if node.culprit] == ["rank 5"]


def test_a_run_without_records_has_no_sections():
    assert list(sections(Trace(()))) == []


def test_a_section_that_breaks_leaves_the_report_as_it_is():
    logged = []
    report = with_sections(EVERYTHING, object(), PAGE, logged.append)
    assert report.sections == ()
    assert "AttributeError" in logged[0]


@pytest.mark.parametrize("ranks", [4, 512])
def test_the_page_of_a_run_of_many_ranks_is_small(ranks):
    def change(rank, one):
        steps = tuple(diverging(rank, step(index, time=float(index))) for index in range(20))
        return replace(drawing(one, tuple(range(100)), tuple(range(100))), steps=steps, step_count=20)

    finding = Finding("DD601", Level.WARN, "slow", "why", "fix", ranks=(3,))
    report = replace(EVERYTHING, findings=(finding,))
    page = render(clean(with_sections(report, recorded(ranks, change), PAGE, print), {}))
    assert len(page.encode()) < 2_000_000
    assert page.count("<figure>") >= 3


def test_pictures_are_made_for_pages_alone():
    options = ReportOptions([Format.JSON, Format.TERMINAL])
    assert with_sections(EVERYTHING, recorded(2), options, print) is EVERYTHING
