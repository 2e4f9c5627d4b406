from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.training import Backward
from ddpdoctor.recorder.events.updates import SchedulerStep
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import each_step, raising


def stepping(times, nproc=2):
    return each_step(
        lambda rank, own: replace(
            own, schedulers=(SchedulerStep(0, where(57), "CosineAnnealingLR"),) * times(rank, own.index)
        ),
        nproc,
    )


def test_once_for_each_rank():
    finding = only_finding("DD219", Source.RUN, stepping(lambda rank, index: 3, nproc=3))
    assert finding.level is Level.WARN
    assert finding.headline == ("CosineAnnealingLR is stepped 3 times at once, as many as there are ranks")
    assert finding.where == where(57)


def test_a_framework_steps_it_once_for_each_rank_on_purpose():
    one = SchedulerStep(0, where(57), "LambdaLR", by="accelerate")
    passed("DD219", Source.RUN, each_step(lambda rank, own: replace(own, schedulers=(one, one)), 2))


def test_once_for_each_rank_at_the_end_of_an_epoch():
    trace = stepping(lambda rank, index: 2 * (index in (0, 2)))
    assert "stepped 2 times at once" in only_finding("DD219", Source.RUN, trace).headline


def test_once_for_each_micro_batch():
    """Two micro-batches for an update, and two ranks."""

    def change(rank, one):
        steps = tuple(
            replace(
                own,
                backwards=tuple(Backward(2.0 * own.index + part, where(50)) for part in (0, 1)),
                schedulers=tuple(
                    SchedulerStep(0, where(57), "LambdaLR", time=2.0 * own.index + part)
                    for part in (1.5, 2.5)
                ),
            )
            for own in one.steps
        )
        return replace(one, steps=steps)

    passed("DD219", Source.RUN, recorded(2, change))


def test_less_often_on_some_ranks():
    finding = only_finding("DD219", Source.RUN, stepping(lambda rank, index: int(rank != 1), nproc=3))
    assert finding.level is Level.FAIL
    assert finding.headline == "CosineAnnealingLR is stepped 0 times on rank 1 and 4 times on the other ranks"
    assert finding.ranks == (1,)


def test_an_epoch_that_ends_with_a_second_step_is_right():
    passed("DD219", Source.RUN, stepping(lambda rank, index: 2 if index == 2 else 1))


def test_a_broken_run_ends_at_unequal_places():
    def change(rank, one):
        count = 2 if rank else 1
        steps = tuple(
            replace(own, schedulers=(SchedulerStep(0, where(57), "S"),) * (own.index < count))
            for own in one.steps
        )
        return replace(one, steps=steps)

    passed("DD219", Source.RUN, raising("no", change=change))


def test_no_scheduler_is_skipped():
    assert skipped("DD219", Source.RUN, recorded()).reason == "no scheduler was stepped"
