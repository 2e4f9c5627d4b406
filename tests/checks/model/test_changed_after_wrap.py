from ddpdoctor.model import Source
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import backward, diverging, each_step, forward, with_update


def test_parameters_that_came_after_the_wrap():
    trace = each_step(
        lambda r, own: replace(own, forwards=(forward(own.time + 0.2, unknown=("head.weight",)),)), 3
    )
    finding = only_finding("DD205", Source.RUN, trace)
    assert finding.headline == (
        "Linear has 1 parameter that DistributedDataParallel does not know on ranks 0-2: head.weight"
    )
    assert finding.where == where(30)


def test_parameters_that_were_frozen_at_the_wrap():
    def change(rank, one):
        (wrapper,) = one.wrappers
        weight, *others = wrapper.parameters
        wrapped = replace(wrapper, parameters=(replace(weight, requires_grad=False), *others))
        step = replace(one.steps[-1], forwards=(forward(one.steps[-1].time + 0.2, unknown=(weight.key,)),))
        return replace(one, wrappers=(wrapped,), steps=(*one.steps[:-1], step))

    finding = only_finding("DD205", Source.RUN, recorded(2, change))
    assert finding.evidence[0].text.startswith("unfrozen: ")
    assert "again, each time that parameters were unfrozen" in finding.fix


def test_an_evaluation_tells_nothing():
    trace = each_step(
        lambda r, own: replace(own, forwards=(*own.forwards, forward(own.time, unknown=("a",), grad=False)))
    )
    passed("DD205", Source.RUN, trace)


def deaf(rank, own):
    return diverging(rank, own, forwards=(forward(own.time + 0.2),), backwards=(backward(own.time + 0.5),))


def test_hooks_that_a_conversion_dropped():
    finding = only_finding("DD205", Source.RUN, each_step(deaf))
    assert finding.headline == (
        "DistributedDataParallel's hooks no longer fire for Linear's gradients on ranks 0-1: "
        "2 of 2 differ between ranks"
    )
    assert finding.where == where(30)


def test_a_bucket_that_waits_for_an_unused_parameter_is_another_disease():
    passed(
        "DD205",
        Source.RUN,
        each_step(lambda r, own: with_update(deaf(r, own), gradients={"weight": f"{r}", "bias": None})),
    )


def test_a_hook_of_the_scripts_own_may_do_as_it_likes():
    def change(rank, one):
        steps = tuple(deaf(rank, own) for own in one.steps)
        return replace(one, steps=steps, wrappers=(replace(one.wrappers[0], hook="my_hook"),))

    passed("DD205", Source.RUN, recorded(2, change))


def test_nothing_wrapped_is_skipped():
    assert skipped("DD205", Source.RUN, recorded(2, lambda r, one: replace(one, wrappers=()))).reason
