"""DD201, DD202 and DD207: a backward that no all-reduce followed, and why."""

import pytest

from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.training import Collective, Parameter, Wrapper
from ddpdoctor.recorder.events.updates import Optimizer
from ddpdoctor.trace.data import TrainingStep
from tests.support.judging import ask, only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import (
    LINE_OF_BACKWARD,
    backward,
    diverging,
    each_step,
    forward,
    update,
    with_update,
)

CODES = ("DD201", "DD202", "DD207")


def only(code, trace):
    """The finding of one of the three; the others stay silent."""
    for other in CODES:
        if other != code:
            passed(other, Source.RUN, trace)
    return only_finding(code, Source.RUN, trace)


def silent(trace):
    for code in CODES:
        passed(code, Source.RUN, trace)


def around(rank, own: TrainingStep) -> TrainingStep:
    return diverging(
        rank,
        own,
        forwards=(forward(own.time + 0.2, around=True, at=where(44)),),
        backwards=(backward(own.time + 0.5),),
    )


def test_a_call_around_the_wrapper():
    finding = only("DD201", each_step(around))
    assert finding.level is Level.FAIL
    assert finding.headline == (
        "ranks 0-1 trained Linear without DistributedDataParallel's forward: 2 of 2 gradients differ between ranks"
    )
    assert finding.ranks == (0, 1)
    assert finding.where == where(44)
    assert [one.text for one in finding.evidence] == [
        "4 training steps with such gradients, the first: step 0",
        "gradients that differ: weight, bias",
    ]


def test_a_method_of_the_inner_module_leaves_no_forward():
    finding = only(
        "DD201",
        each_step(lambda r, own: diverging(r, own, forwards=(), backwards=(backward(own.time + 0.5),))),
    )
    assert finding.where == where(LINE_OF_BACKWARD)
    (wrapped,) = (one for one in finding.evidence if one.where)
    assert wrapped.text.startswith("the wrapper was made at ")


def test_equal_data_hides_a_bypass_from_the_gradients():
    trace = each_step(
        lambda r, own: replace(
            own, forwards=(forward(own.time + 0.2, around=True),), backwards=(backward(own.time + 0.5),)
        )
    )
    assert only("DD201", trace).headline.endswith("no all-reduce averaged its gradients")


def test_averaging_by_hand_after_a_bypass_is_right():
    def change(rank, own):
        return replace(
            own,
            forwards=(forward(own.time + 0.2, around=True),),
            backwards=(backward(own.time + 0.5),),
            collectives=(
                Collective(own.time + 0.6, where(60), "all_reduce", shape=(4,), gradient_of="weight"),
            ),
        )

    silent(each_step(change))


def test_an_evaluation_of_the_inner_module_is_right():
    silent(
        each_step(
            lambda r, own: replace(own, forwards=(*own.forwards, forward(own.time, around=True, grad=False)))
        )
    )


def test_a_loss_of_the_inner_module_beside_the_forward_is_right():
    silent(
        each_step(lambda r, own: replace(own, forwards=(*own.forwards, forward(own.time + 0.3, around=True))))
    )


def window(rank, own: TrainingStep, *synced: bool, reduced: int | None) -> TrainingStep:
    """A step over micro-batches, one of which reduces."""
    times = [own.time + 0.1 * n for n in range(len(synced))]
    return diverging(
        rank,
        own,
        forwards=tuple(forward(t, synced=one) for t, one in zip(times, synced, strict=True)),
        backwards=tuple(backward(t + 0.05, *([0] if n == reduced else [])) for n, t in enumerate(times)),
    )


def test_the_first_micro_batch_reduces_instead_of_the_last():
    finding = only("DD202", each_step(lambda r, own: window(r, own, True, False, False, reduced=0)))
    assert finding.headline == (
        "optimizer.step() used gradients that were not all-reduced on ranks 0-1: "
        "backward 1 of 3 was, and the last ran under no_sync()"
    )
    assert finding.where == where(LINE_OF_BACKWARD)


def test_no_micro_batch_reduces():
    finding = only("DD202", each_step(lambda r, own: window(r, own, False, False, reduced=None)))
    assert "all 2 backwards of the window ran under no_sync()" in finding.headline


def test_accumulation_that_reduces_last_is_right():
    def change(rank, own):
        own = window(rank, own, False, False, True, reduced=2)
        return with_update(own, gradients={"weight": "g", "bias": "g"})

    silent(each_step(change))


def test_averaging_weights_at_intervals_is_right():
    """Local SGD: two steps alone, and then equal weights again."""

    def change(rank, own):
        own = window(rank, own, False, reduced=None)
        if own.index % 2 == 0:
            own = with_update(own, before={"weight": f"average {own.index}", "bias": f"average {own.index}"})
        return own

    silent(each_step(change))


@pytest.mark.parametrize("hook", ["post_localSGD_hook", "_LocalHook.run"])
def test_a_hook_that_leaves_ranks_alone_is_by_design(hook):
    def change(rank, one):
        steps = tuple(window(rank, own, True, reduced=None) for own in one.steps)
        return replace(one, steps=steps, wrappers=(replace(one.wrappers[0], hook=hook),))

    silent(recorded(2, change))


def test_an_optimizer_that_averages_is_by_design():
    def change(rank, one):
        steps = tuple(window(rank, own, False, reduced=None) for own in one.steps)
        return replace(one, steps=steps, optimizers=(replace(one.optimizers[0], averages=True),))

    silent(recorded(2, change))


def test_steps_inside_a_join_are_left_alone():
    silent(each_step(lambda r, own: replace(around(r, own), joined=True)))


def two_losses(rank, own: TrainingStep) -> TrainingStep:
    t = own.time
    return diverging(
        rank,
        own,
        forwards=(forward(t + 0.1), forward(t + 0.2)),
        backwards=(backward(t + 0.3, 0), backward(t + 0.4, at=where(53))),
    )


def test_a_second_backward_after_the_reducer_was_finished():
    finding = only("DD207", each_step(two_losses, 3))
    assert finding.headline == (
        "a second backward of the step was not averaged on ranks 0-2: 2 of 2 gradients differ between ranks"
    )
    assert finding.where == where(53)


def test_forward_backward_forward_backward_is_right():
    def change(rank, own):
        t = own.time
        return replace(
            own,
            forwards=(forward(t + 0.1), forward(t + 0.3)),
            backwards=(backward(t + 0.2, 0), backward(t + 0.4, 0)),
        )

    silent(each_step(change))


def gan(rank, one):
    """Two wrappers whose losses are taken backward one after the other, before both optimizers step."""
    critic = Wrapper(1, where(31), 0.1, "Critic", (Parameter("weight (wrapper 1)", (4,), "float32"),))
    steps = []
    for own in one.steps:
        t = own.time
        equal = update(1, own.index, gradients={"weight (wrapper 1)": f"g {own.index}"})
        steps.append(
            replace(
                own,
                forwards=(forward(t + 0.1), forward(t + 0.2, wrapper=1)),
                backwards=(backward(t + 0.3, 0), backward(t + 0.4, 1)),
                optimizer_steps=(*own.optimizer_steps, equal),
            )
        )
    optimizers = (*one.optimizers, Optimizer(1, "Adam", ("weight (wrapper 1)",)))
    return replace(one, wrappers=(*one.wrappers, critic), optimizers=optimizers, steps=tuple(steps))


def test_a_gan_with_two_wrappers_is_right():
    silent(recorded(2, gan))


def test_ranks_of_other_process_groups_are_not_compared():
    def change(rank, one):
        pair = (0, 1) if rank < 2 else (2, 3)
        steps = tuple(diverging(rank // 2, own) for own in one.steps)
        return replace(one, wrappers=(replace(one.wrappers[0], ranks=pair),), steps=steps)

    silent(recorded(4, change))


def test_gradients_that_were_not_looked_at_prove_nothing():
    silent(each_step(lambda r, own: with_update(around(r, own), gradients=None)))


@pytest.mark.parametrize("code", CODES)
def test_nothing_wrapped_and_one_rank_are_skipped(code):
    bare = recorded(2, lambda rank, one: replace(one, wrappers=()))
    assert "nothing was wrapped" in skipped(code, Source.RUN, bare).reason
    assert "two ranks" in skipped(code, Source.RUN, recorded(1)).reason


@pytest.mark.parametrize("code", CODES)
def test_a_right_run_passes(code):
    assert ask(code, Source.RUN, recorded(3)).text
