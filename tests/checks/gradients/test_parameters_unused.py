from ddpdoctor import registry
from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Backward, Collective
from tests.support.judging import only_finding, passed
from tests.support.recordings import recorded, replace, step, where
from tests.support.training import LINE_OF_FORWARD, raising, with_update

MESSAGE = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates "
    "that your module has parameters that were not used in producing loss.\n"
    "Parameter indices which did not receive grad for rank {rank}: 1\n In addition, you can set ..."
)


def without_bias(one, **flags):
    steps = (*one.steps[:-1], with_update(one.steps[-1], gradients={"weight": "g", "bias": None}))
    return replace(one, steps=steps, wrappers=(replace(one.wrappers[0], flags=flags),))


def test_names_from_the_gradients_of_the_last_step():
    finding = only_finding("DD204", Source.RUN, raising(MESSAGE, change=lambda rank, one: without_bias(one)))
    assert finding.headline == "ranks 0-1 did not produce gradients for 1 of 2 parameters: bias"
    assert finding.where == where(LINE_OF_FORWARD)
    assert finding.ranks == (0, 1)
    assert finding.evidence[0].text == "no gradient: bias"


def test_names_from_the_numbers_in_the_message():
    finding = only_finding("DD204", Source.RUN, raising(MESSAGE))
    assert finding.headline == "ranks 0-1 did not produce gradients for 1 of 2 parameters: bias"


def test_the_rank_that_left_it_out_is_to_blame_and_not_those_that_waited():
    trace = raising(MESSAGE, ranks=(1,), nproc=3, change=lambda r, one: without_bias(one) if r == 1 else one)
    finding = only_finding("DD204", Source.RUN, trace)
    assert finding.headline.startswith("rank 1 did not produce")
    assert finding.ranks == (1,)
    assert "Ranks 0, 2 used these parameters, and must wait for rank 1" in finding.why
    assert finding.evidence[0].ranks == (0, 2)


def test_a_last_step_without_a_gradient_is_found_before_it_raises():
    trace = recorded(2, lambda rank, one: without_bias(one))
    assert "bias" in only_finding("DD204", Source.RUN, trace).headline


def test_a_gathering_that_leaves_out_the_gradient_is_shown():
    gathered = Collective(3.1, where(44), "all_gather", requires_grad=True)

    def change(rank, one):
        *steps, last = without_bias(one).steps
        return replace(one, steps=(*steps, replace(last, collectives=(gathered,))))

    finding = only_finding("DD204", Source.RUN, recorded(2, change))
    assert [evidence.where for evidence in finding.evidence if evidence.where] == [where(44)]


def test_a_later_forward_shows_that_ddp_did_not_miss_it():
    late = step(9, optimizer_steps=())
    passed("DD204", Source.RUN, recorded(2, lambda rank, one: replace(without_bias(one), trailing=late)))


def test_a_forward_after_a_step_without_it_shows_that_the_script_took_the_gradient_away():
    def change(rank, one):
        steps = [with_update(own, gradients={"weight": "g", "bias": None}) for own in one.steps]
        return replace(one, steps=tuple(steps))

    passed("DD204", Source.RUN, recorded(2, change))


def test_find_unused_parameters_takes_care_of_it():
    passed("DD204", Source.RUN, recorded(2, lambda r, one: without_bias(one, find_unused_parameters=True)))


def test_an_optimizer_of_another_network_leaves_all_gradients_none():
    def change(rank, one):
        return replace(one, steps=(with_update(one.steps[0], gradients={"weight": None, "bias": None}),))

    passed("DD204", Source.RUN, recorded(2, change))


def test_the_exception_by_which_lightning_replaces_that_of_ddp():
    message = "It looks like your LightningModule has parameters that were not used in producing the loss returned by "
    finding = only_finding(
        "DD204", Source.RUN, raising(f"{message}training_step. If this is intentional, ...")
    )
    assert finding.headline == "ranks 0-1 did not produce gradients for some parameters"


def test_a_static_graph_that_changed_is_another_disease():
    owner = registry.by_exception(
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. "
        "This error indicates that your training graph has changed in this iteration, e.g., ... "
        "this is not compatible with static_graph set to True."
    )
    assert owner is not None
    assert owner.code == "DD222"


def unconnected(ranks, at=2):
    """In one step the backward of some ranks does not come to the wrapped module."""

    def change(rank, one):
        steps = tuple(
            replace(own, backwards=(Backward(own.index + 0.5, where(49), missed=(0,)),))
            if own.index == at and rank in ranks
            else own
            for own in one.steps
        )
        return replace(one, steps=steps)

    return change


def test_a_loss_without_a_graph_on_one_rank():
    finding = only_finding("DD204", Source.RUN, recorded(3, unconnected([1])))
    assert finding.headline.startswith("the loss of rank 1 in training step 2 does not depend on Linear")
    assert (finding.ranks, finding.where) == ((1,), where(49))


def test_a_backward_of_something_else_on_all_ranks():
    passed("DD204", Source.RUN, recorded(3, unconnected([0, 1, 2])))
