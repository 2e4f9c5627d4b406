import pytest

from ddpdoctor.model import Level, Source, Where
from ddpdoctor.recorder.events.files import Printed, Save
from ddpdoctor.recorder.events.training import Collective, Forward
from ddpdoctor.recorder.events.updates import SchedulerStep
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import evaluating
from tests.support.recordings import recorded, replace, where

LINE = Printed(11.5, where(66), "accuracy 0.75")


def evaluated(on_rank_0=None, on_all=None, order_of=lambda rank: range(rank, 16, 2), **fields):
    """Parts of 16 samples evaluated from 10 s to 11 s, after training; fields are the recording's."""

    def change(rank, one):
        made = evaluating(one, order_of(rank))
        for own in (on_all, on_rank_0 if rank == 0 else None):
            made = replace(made, **(own or {}))
        return made

    return recorded(change=change)


def test_rank_0_prints_its_own_number():
    finding = only_finding("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}))
    assert finding.level is Level.WARN
    assert finding.headline == (
        "rank 0 prints the result after an evaluation of 8 of 16 samples, with nothing reduced over the ranks"
    )
    assert finding.where == where(66)
    assert finding.evidence[0].text == "'accuracy 0.75'"


def test_what_is_printed_of_training_after_the_evaluation_is_not_its_result():
    summary = [
        Printed(11.5, where(66), "Training Loss: 0.6931, Accuracy: 43.75%"),
        Printed(11.6, where(67), "Validation Loss: 0.6990, Accuracy: 41.00%"),
    ]
    finding = only_finding("DD502", Source.RUN, evaluated({"record": Record.made(*summary)}))
    assert finding.where == where(67)
    passed("DD502", Source.RUN, evaluated({"record": Record.made(summary[0])}))


def test_one_line_that_prints_for_two_loaders_is_one_finding():
    def change(rank, one):
        made = evaluating(one, range(rank, 16, 2))
        again = evaluating(made, range(rank, 16, 2), begin=20.0)
        loader = replace(again.loaders[-1], index=8, at=where(61))
        lines = Record.made(LINE, replace(LINE, time=21.5)) if rank == 0 else one.record
        passes = (*made.passes, replace(again.passes[-1], loader=8))
        return replace(again, loaders=(*made.loaders, loader), passes=passes, record=lines)

    only_finding("DD502", Source.RUN, recorded(change=change))


def test_rank_0_saves_by_its_own_number():
    finding = only_finding(
        "DD502", Source.RUN, evaluated({"saves": (Save("/jobs/best.pt", where(68), 11.6, 11.7),)})
    )
    assert finding.headline.startswith(
        "rank 0 chooses the best checkpoint after an evaluation of 8 of 16 samples"
    )


def test_every_rank_steps_a_scheduler_by_its_own_number():
    def change(rank, one):
        made = evaluating(one, range(rank, 16, 2))
        plateau = SchedulerStep(0, where(69), "ReduceLROnPlateau", 0.25 + rank, time=11.6)
        return replace(made, record=Record.made(plateau))

    finding = only_finding("DD502", Source.RUN, recorded(change=change))
    assert finding.headline.startswith("ranks 0-1 step ReduceLROnPlateau by their own metrics after")
    assert finding.evidence[1].text == "metric 1.25"


def test_a_reduction_passes():
    for operation in ("all_reduce", "all_gather_object", "gather", "broadcast"):
        call = Collective(11.2, where(65), operation)
        passed("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}, {"collectives": (call,)}))


def test_a_reduction_in_each_batch_passes():
    call = Collective(10.5, where(64), "all_reduce")
    passed("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}, {"collectives": (call,)}))


def test_a_barrier_reduces_nothing():
    call = Collective(11.2, where(65), "barrier")
    only_finding("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}, {"collectives": (call,)}))


def test_the_whole_set_on_every_rank_is_right():
    trace = evaluated({"record": Record.made(LINE)}, order_of=lambda rank: range(16))
    assert skipped("DD502", Source.RUN, trace).reason == "the evaluation is not divided among the ranks"


def test_the_whole_set_on_rank_0_is_right():
    trace = recorded(
        change=lambda rank, one: replace(
            one if rank else evaluating(one, range(16)), record=Record.made(LINE)
        )
    )
    assert "together" in skipped("DD502", Source.RUN, trace).reason


def test_a_line_without_a_result_is_right():
    passed("DD502", Source.RUN, evaluated({"record": Record.made(replace(LINE, text="epoch 3 is done"))}))


def test_every_rank_that_prints_its_own_part_is_right():
    passed("DD502", Source.RUN, evaluated(on_all={"record": Record.made(LINE)}))


def test_results_left_in_a_file_of_each_rank_are_right():
    def change(rank, one):
        save = Save(f"/jobs/part{rank}.pt", where(68), 11.6, 11.7)
        return replace(evaluating(one, range(rank, 16, 2)), saves=(save,))

    passed("DD502", Source.RUN, recorded(change=change))


def test_two_files_of_one_rank_are_no_file_of_each():
    saves = tuple(Save(f"/jobs/{name}.pt", where(68), 11.6, 11.7) for name in ("best", "metrics"))
    finding = only_finding("DD502", Source.RUN, evaluated({"saves": saves}))
    assert finding.headline.startswith(
        "rank 0 chooses the best checkpoint after an evaluation of 8 of 16 samples"
    )


def test_the_metric_of_an_earlier_round_is_not_this_ones():
    """The scheduler was stepped before this evaluation began, by what another had given."""
    plateau = SchedulerStep(0, where(69), "ReduceLROnPlateau", 0.25, time=9.5)
    passed("DD502", Source.RUN, evaluated(on_all={"record": Record.made(plateau)}))


def test_weights_that_are_exchanged_are_no_metric():
    call = Collective(11.2, where(65), "broadcast", weight_of="weight")
    only_finding("DD502", Source.RUN, evaluated({"record": Record.made(LINE)}, {"collectives": (call,)}))


def test_the_gravest_use_of_all_rounds_is_told():
    def change(rank, one):
        made = evaluating(evaluating(one, range(rank, 16, 2)), range(rank, 16, 2))
        *rest, first, second = made.passes
        second = replace(second, begin=20.0, end=21.0, number=1, loader=first.loader)
        made = replace(made, passes=(*rest, first, second))
        if rank:
            return made
        return replace(made, record=Record.made(LINE), saves=(Save("/best.pt", where(68), 21.5, 21.6),))

    finding = only_finding("DD502", Source.RUN, recorded(change=change))
    assert finding.headline.startswith("rank 0 chooses the best checkpoint")
    assert finding.where == where(68)


def slices(text, inputs=("a", "b"), **changes):
    """Each rank evaluates an input of its own after the last step, without a DataLoader; rank 0 prints."""

    def change(rank, one):
        forward = Forward(20.0, where(61), 0, grad=False, training=False, input=inputs[rank])
        forward = replace(forward, **changes)
        lines = [] if rank else [Printed(20.5, where(66), text)]
        return replace(one, record=Record.made(forward, *lines))

    return recorded(change=change)


def test_rank_0_prints_what_it_evaluated_without_a_loader():
    finding = only_finding("DD502", Source.RUN, slices("epoch 3: val_loss 0.7512"))
    assert finding.headline.startswith("rank 0 prints the result after an evaluation of its own part")
    assert finding.where == where(66)


def test_what_follows_a_forward_in_eval_mode_may_be_anything():
    for text in ("epoch 3: loss 0.7512", "return of 12.5", "evaluating took 3.5 s"):
        passed("DD502", Source.RUN, slices(text))


def test_ranks_that_evaluate_the_same_are_left_alone():
    skipped("DD502", Source.RUN, slices("test loss 0.75", inputs=("a", "a")))
    skipped("DD502", Source.RUN, slices("test loss 0.75", training=True))


def test_what_is_printed_of_each_batch_is_not_the_result():
    batch = Printed(10.5, where(62), "batch 1: loss 0.75")
    finding = only_finding("DD502", Source.RUN, evaluated({"record": Record.made(batch, LINE)}))
    assert finding.where == where(66)


@pytest.mark.parametrize(("text", "told"), [("loss 1.25, accuracy 0.75", True), ("accuracy 0.75", False)])
def test_a_loss_that_is_printed_beside_a_reduced_metric(tmp_path, text, told):
    file = tmp_path / "train.py"
    file.write_text(
        "def evaluate(loader):\n    for x, y in loader:\n        loss += criterion(x, y)\n"
        "        correct += hits(x, y)\n    dist.all_reduce(correct)\n    return loss, correct\n"
    )

    def change(rank, recording):
        made = evaluating(recording, range(rank, 16, 2))
        *passes, last = made.passes
        reduced = Collective(11.2, Where(str(file), 5, "evaluate"), "all_reduce", shape=())
        lines = [] if rank else [replace(LINE, text=text)]
        last = replace(last, at=Where(str(file), 2, "evaluate"))
        return replace(made, passes=(*passes, last), record=Record.made(reduced, *lines))

    trace = recorded(change=change)
    if told:
        headline = only_finding("DD502", Source.RUN, trace).headline
        assert headline.endswith("with loss not reduced over the ranks")
    else:
        passed("DD502", Source.RUN, trace)
