import pytest

from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.training import Collective, MeanLoss
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import each_step


def counting(count, *, among=lambda own: True, collectives=(), function="cross_entropy", ignored=-100):
    """Each step has a mean loss over ``count(rank)`` elements, in the steps where that is so."""

    def change(rank, own):
        number = count(rank) if among(own) else count(0)
        loss = MeanLoss(where(47), function, number, ignored=ignored)
        return replace(own, losses=(loss,), collectives=collectives)

    return change


def test_unequal_counts_are_told_with_the_worst_ratio():
    finding = only_finding("DD209", Source.RUN, each_step(counting(lambda rank: 32 if rank else 8)))
    assert finding.level is Level.WARN
    assert finding.headline == (
        "cross_entropy averages over 8 to 32 elements in one step: those of some ranks count 4.0 times as much"
    )
    assert finding.where == where(47)
    assert [(one.text, one.ranks) for one in finding.evidence[:2]] == [
        ("step 0: 8 elements", (0,)),
        ("step 0: 32 elements", (1,)),
    ]


@pytest.mark.parametrize(
    ("function", "ignored", "lines"),
    [
        ("cross_entropy", -100, ('(outputs, targets, reduction="sum")', "count = (targets != -100).sum()")),
        (
            "nll_loss",
            0,
            ('F.nll_loss(outputs, targets, ignore_index=0, reduction="sum")', "count = (targets != 0).sum()"),
        ),
        (
            "mse_loss",
            None,
            ('F.mse_loss(outputs, targets, reduction="sum")', "torch.tensor(targets.numel(), device="),
        ),
    ],
)
def test_the_fix_has_the_scripts_own_loss(function, ignored, lines):
    uneven = counting(lambda rank: 32 if rank else 8, function=function, ignored=ignored)
    finding = only_finding("DD209", Source.RUN, each_step(uneven))
    assert [line in finding.fix for line in lines] == [True, True]


def by_hand(count, factor):
    """Each step divides a sum by ``count(rank)`` and multiplies it by ``factor(rank)``."""

    def change(rank, own):
        loss = MeanLoss(where(47), None, count(rank), factor=factor(rank))
        return replace(own, losses=(loss,))

    return each_step(change)


def test_a_sum_that_is_divided_by_hand():
    finding = only_finding("DD209", Source.RUN, by_hand(lambda rank: 8 + 24 * rank, lambda rank: 0.5))
    assert finding.headline == (
        "the loss averages over 8 to 32 elements in one step: those of some ranks count 4.0 times as much"
    )
    assert "loss = losses.sum() * dist.get_world_size() / total" in finding.fix


@pytest.mark.parametrize(
    ("count", "factor"),
    [
        (lambda rank: 8 + 24 * rank, lambda rank: 8 + 24 * rank),
        (lambda rank: 8, float),
        (lambda rank: 40 + 8 * rank, lambda rank: 1.0),
    ],
    ids=["made good", "equal", "about equal"],
)
def test_a_count_that_does_not_matter(count, factor):
    passed("DD209", Source.RUN, by_hand(count, factor))


def test_equal_counts_pass():
    assert passed("DD209", Source.RUN, each_step(counting(lambda rank: 32))).text == (
        "losses averaged over equal counts in 4 training steps"
    )


def test_a_few_elements_more_are_nothing():
    passed("DD209", Source.RUN, each_step(counting(lambda rank: 100 + rank)))


def test_a_short_last_batch_is_nothing():
    def change(rank, one):
        uneven = counting(lambda r: 1 + r, among=lambda own: own.index == 9)
        steps = tuple(uneven(rank, replace(one.steps[0], index=n, time=float(n))) for n in range(10))
        return replace(one, steps=steps)

    passed("DD209", Source.RUN, recorded(2, change))


def test_a_count_that_is_all_reduced_may_scale_the_loss():
    total = Collective(0.1, where(46), "all_reduce", shape=())
    trace = each_step(counting(lambda rank: 8 + 8 * rank, collectives=(total,)))
    assert skipped("DD209", Source.RUN, trace).reason.startswith("no loss was recorded")


def test_no_mean_loss_is_skipped():
    assert skipped("DD209", Source.RUN, recorded()).reason.startswith("no loss was recorded")


def test_ranks_that_slipped_out_of_step_are_compared_with_the_wrong_batches():
    trace = each_step(counting(lambda rank: 32 if rank else 8))
    assert only_finding("DD209", Source.RUN, trace).explained_by == ()
    ranks = tuple(replace(rank, finished=False) for rank in trace.ranks)
    assert only_finding("DD209", Source.RUN, replace(trace, ranks=ranks)).explained_by == ("DD308",)
