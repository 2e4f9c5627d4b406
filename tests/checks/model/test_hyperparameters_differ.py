from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.recorder.events.updates import Optimizer, SchedulerStep
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import LINE_OF_UPDATE, each_step, with_update


def rates(value, metric=None):
    """Each step has ``value(rank, step)`` as learning rate, and a plateau scheduler after it."""

    def change(rank, own):
        schedulers = (
            ()
            if metric is None
            else (SchedulerStep(0, where(58), "ReduceLROnPlateau", metric(rank), own.index + 0.95),)
        )
        return with_update(
            replace(own, schedulers=schedulers), hyperparameters=({"lr": value(rank, own.index)},)
        )

    return each_step(change)


def test_a_rate_that_depends_on_the_rank():
    finding = only_finding("DD208", Source.RUN, rates(lambda rank, index: 0.1 * (rank + 1)))
    assert finding.headline == "lr differs between ranks in step 0: 0.1 on rank 0, 0.2 on rank 1"
    assert finding.where == where(LINE_OF_UPDATE)
    assert finding.ranks == (0, 1)


def test_the_line_to_change_is_where_the_optimizer_was_given_the_rate():
    trace = rates(lambda rank, index: 0.1 * (rank + 1))
    made = {
        rank.rank: Optimizer(
            0, "SGD", ("weight", "bias"), made=where(33), defaults={"lr": 0.1 * (rank.rank + 1)}
        )
        for rank in trace.ranks
    }
    ranks = tuple(
        replace(one, recording=replace(one.recording, optimizers=(made[one.rank],))) for one in trace.ranks
    )
    finding = only_finding("DD208", Source.RUN, replace(trace, ranks=ranks))
    assert finding.where == where(33)
    assert finding.evidence[-1].text == f"updated at train.py:{LINE_OF_UPDATE}"


def test_the_line_to_change_is_the_schedulers_where_it_gave_another_rate():
    trace = rates(lambda rank, index: 0.1 if rank or index < 2 else 0.05, metric=lambda rank: None)
    finding = only_finding("DD208", Source.RUN, trace)
    assert finding.where == where(58)


def test_a_plateau_that_each_rank_judges_by_itself():
    trace = rates(lambda rank, index: 0.1 if rank or index < 2 else 0.05, metric=lambda rank: 1.0 + rank)
    finding = only_finding("DD208", Source.RUN, trace)
    assert finding.headline == "lr differs between ranks in step 2: 0.05 on rank 0, 0.1 on rank 1"
    assert finding.where == where(58)
    assert finding.evidence[0].text == "step 2, parameter group 0: lr = 0.05, after a metric of 1"


def test_unequal_metrics_are_a_warning_before_the_rates_part():
    trace = rates(lambda rank, index: 0.1, metric=lambda rank: 1.0 + rank)
    finding = only_finding("DD208", Source.RUN, trace)
    assert finding.level is Level.WARN
    assert finding.headline == (
        "ReduceLROnPlateau is given a different metric on each rank: 1 on rank 0, 2 on rank 1"
    )
    assert finding.where == where(58)


def test_metrics_that_differ_by_rounding_pass():
    passed("DD208", Source.RUN, rates(lambda rank, index: 0.1, metric=lambda rank: 1.0 + rank * 1e-7))


def test_a_rate_that_one_rank_sends_after_its_scheduler_decided_passes():
    """Each steps a scheduler of its own, and then all take rank 0's rate."""
    trace = rates(lambda rank, index: 0.1, metric=lambda rank: 1.0 + rank)
    sent = tuple(Collective(index + 0.96, where(59), "broadcast") for index in range(4))
    ranks = tuple(replace(one, recording=replace(one.recording, collectives=sent)) for one in trace.ranks)
    passed("DD208", Source.RUN, replace(trace, ranks=ranks))


def test_ranks_that_train_a_model_each_may_try_what_they_like():
    def change(rank, one):
        steps = tuple(with_update(own, hyperparameters=({"lr": rank},)) for own in one.steps)
        return replace(one, wrappers=(), loaders=(), steps=steps)

    assert skipped("DD208", Source.RUN, recorded(2, change)).reason.startswith(
        "each rank trains a model of its own"
    )


def test_a_rate_that_changes_alike_passes():
    assert passed("DD208", Source.RUN, rates(lambda rank, index: 0.1 / (index + 1))).text == (
        "hyperparameters are equal on every rank in 4 optimizer steps"
    )


def test_one_rank_is_skipped():
    assert skipped("DD208", Source.RUN, recorded(1)).reason == "needs at least two ranks"
