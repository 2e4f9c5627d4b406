"""DD206 on what the recorder saw of a script."""

import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.files import StateLoad
from ddpdoctor.recorder.events.training import Collective, ForwardWeights, GradientCall
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import LINE_OF_UPDATE, diverging, with_update


def moved(ranks, at=2, loads=()):
    """Between two steps the weights of some ranks change by themselves, and stay apart."""

    def change(rank, one):
        def altered(own):
            if rank not in ranks or own.index < at:
                return own
            taken = own.optimizer_steps[0]
            return with_update(
                own,
                before={key: f"{value} of {rank}" for key, value in taken.before.items()},
                after={key: f"{value} of {rank}" for key, value in taken.after.items()},
            )

        return replace(one, steps=tuple(map(altered, one.steps)), state_loads=loads if rank in ranks else ())

    return change


def test_the_rank_whose_weights_moved_by_themselves():
    finding = only_finding("DD206", Source.RUN, recorded(3, moved([1])))
    assert (
        finding.headline
        == "rank 1 changed its weights by itself before step 2: 2 of 2 parameters, weight, bias"
    )
    assert finding.ranks == (1,)
    assert finding.where == where(LINE_OF_UPDATE)
    assert [one.ranks for one in finding.evidence] == [(0, 2), (1,)]


def test_rank_0_is_named_where_rank_0_moved():
    assert only_finding("DD206", Source.RUN, recorded(2, moved([0]))).ranks == (0,)


def test_the_load_that_moved_them_is_the_line_to_look_at():
    load = StateLoad("module", "Net", where(66), 2.05, wrapper=0)
    finding = only_finding("DD206", Source.RUN, recorded(2, moved([0], loads=(load,))))
    assert finding.where == where(66)
    assert "load_state_dict into 'Net'" in finding.why


@pytest.mark.parametrize(
    ("alone", "line"),
    [
        pytest.param(
            StateLoad("module", "Net", where(70), 2.06, wrapper=0), 70, id="back into the same module"
        ),
        pytest.param(StateLoad("module", "Teacher", where(80), 2.06), 66, id="into another module"),
    ],
)
def test_a_load_of_rank_0_alone_is_the_line_where_it_loads_back_what_all_swapped_out(alone, line):
    swapped = StateLoad("module", "Net", where(66), 2.05, wrapper=0)

    def change(rank, one):
        own = moved([1], loads=(swapped,))(rank, one)
        return own if rank else replace(own, state_loads=(swapped, alone))

    assert only_finding("DD206", Source.RUN, recorded(2, change)).where == where(line)


def test_all_ranks_that_drew_their_own():
    finding = only_finding("DD206", Source.RUN, recorded(2, moved([0, 1], at=0)))
    assert finding.headline == "weights differ between ranks before step 0: 2 of 2 parameters, weight, bias"
    assert finding.ranks == (0, 1)


def test_weights_that_part_during_an_update():
    def change(rank, one):
        last = with_update(one.steps[-1], after={"weight": f"{rank}", "bias": "b"})
        return replace(one, steps=(*one.steps[:-1], last))

    finding = only_finding("DD206", Source.RUN, recorded(2, change))
    assert finding.headline.startswith("weights differ between ranks after step 3: 1 of 2 parameters, weight")
    assert "optimizers hold unequal state" in finding.why


def test_weights_that_are_averaged_at_intervals_are_by_design():
    def change(rank, one):
        steps = (
            diverging(rank, one.steps[0]),
            with_update(diverging(rank, one.steps[1]), before={"weight": "average", "bias": "average"}),
            *one.steps[2:],
        )
        return replace(one, steps=steps)

    assert "no step was seen" in skipped("DD206", Source.RUN, recorded(2, change)).reason


@pytest.mark.parametrize(("issued", "by_design"), [(9.0, True), (-1.0, False)])
def test_weights_that_the_script_averages_after_updates_of_each_rank_are_by_design(issued, by_design):
    """Their steps need not be as many on each rank, so that those of one number may never be equal again."""
    sent = (Collective(issued, where(60), "all_reduce", weight_of="weight"),)

    def change(rank, one):
        return replace(one, steps=tuple(diverging(rank, step) for step in one.steps), collectives=sent)

    if by_design:
        skipped("DD206", Source.RUN, recorded(2, change))
    else:
        only_finding("DD206", Source.RUN, recorded(2, change))


@pytest.mark.parametrize("by_design", [True, False])
def test_weights_that_are_equal_after_unequal_numbers_of_steps_are_averaged_by_design(by_design):
    """Rank 1 takes two steps before the ranks average their weights, the others one."""

    def change(rank, one):
        steps = [diverging(rank, step) for step in one.steps]
        at = 2 if rank == 1 else 1
        if by_design or rank:
            steps[at] = with_update(steps[at], before={"weight": "average", "bias": "average"})
        return replace(one, steps=tuple(steps))

    trace = recorded(3, change)
    if by_design:
        skipped("DD206", Source.RUN, trace)
    else:
        only_finding("DD206", Source.RUN, trace)


def test_shards_by_design_are_not_compared():
    def change(rank, one):
        one = moved([1])(rank, one)
        return replace(one, optimizers=(replace(one.optimizers[0], sharded=True),))

    assert "no step was seen" in skipped("DD206", Source.RUN, recorded(2, change)).reason


def test_equal_weights_pass():
    assert (
        passed("DD206", Source.RUN, recorded(3)).text == "weights are equal to the bit after 4 training steps"
    )


def by_hand(rank, one, digests, **more):
    """No optimizer of torch took a step; the weights that three forwards met."""
    forwards = tuple(
        ForwardWeights(0, 2 << number, number, where(48), {"weight": digest, "bias": "b"})
        for number, digest in enumerate(digests)
    )
    record = Record.made(*forwards)
    return replace(one, steps=(), step_count=0, record=record, optimizers=(), **more)


def test_weights_that_no_optimizer_of_torch_changed():
    def change(rank, one):
        return by_hand(rank, one, ("a", f"{rank}", f"{rank}"))

    finding = only_finding("DD206", Source.RUN, recorded(3, change))
    assert "before training forward 4: 1 of 2 parameters, weight" in finding.headline
    assert finding.where == where(48)


def test_weights_that_are_equal_again_later_are_averaged_by_design():
    skipped("DD206", Source.RUN, recorded(3, lambda rank, one: by_hand(rank, one, ("a", f"{rank}", "c"))))


def test_weights_that_a_script_sends_around():
    sent = (Collective(1.0, where(60), "all_reduce", weight_of="weight"),)

    def change(rank, one):
        return by_hand(rank, one, ("a", f"{rank}", f"{rank}"), collectives=sent)

    skipped("DD206", Source.RUN, recorded(3, change))


def test_the_call_that_took_gradients_past_the_hooks_is_the_line_to_look_at():
    def change(rank, one):
        own = {"weight": f"{rank}", "bias": f"{rank}"}
        last = with_update(one.steps[-1], gradients=own, after=own)
        call = Record.made(GradientCall(3.6, where(47), 2))
        return replace(one, steps=(*one.steps[:-1], last), record=call)

    assert only_finding("DD206", Source.RUN, recorded(2, change)).where == where(47)


def test_a_communication_hook_that_averages_nothing_is_the_line_to_change():
    def change(rank, recording):
        wrappers = (replace(recording.wrappers[0], hook="keep", hooked_at=where(33)),)
        steps = tuple(diverging(rank, step) for step in recording.steps)
        return replace(recording, wrappers=wrappers, steps=steps)

    finding = only_finding("DD206", Source.RUN, recorded(2, change))
    assert finding.where == where(33)
    assert "leaves averaging to the hook keep" in finding.why


def in_parts(rank, one, digests):
    """Each rank updates one of two parameters; digests of the second that three forwards met, by rank."""
    (optimizer,) = one.optimizers
    forwards = (
        ForwardWeights(0, 2 << number, number, where(48), {"weight": "w", "bias": digest})
        for number, digest in enumerate(digests)
    )
    part = replace(optimizer, keys=(optimizer.keys[min(rank, 1)],))
    steps = tuple(with_update(step, before=None, after=None) for step in one.steps)
    return replace(one, optimizers=(part,), steps=steps, record=Record.made(*forwards))


def test_a_part_that_its_owner_does_not_send():
    def change(rank, one):
        return in_parts(rank, one, ("b", f"{rank}1", f"{rank}2"))

    finding = only_finding("DD206", Source.RUN, recorded(2, change))
    assert finding.headline.startswith("weights that rank 1 alone updates stay different on the other ranks")
    assert (finding.ranks, finding.where) == ((1,), where(50))
    finding = only_finding("DD206", Source.RUN, recorded(3, change))
    assert finding.headline.startswith(
        "weights that ranks 1-2 alone update stay different on the other ranks"
    )


@pytest.mark.parametrize(
    "digests",
    [("a", "b", "c"), ("a", "{}", "c"), ("a", "b", "{}")],
    ids=["sent at once", "sent at intervals", "seen once"],
)
def test_a_part_that_is_or_may_be_sent(digests):
    def change(rank, one):
        return in_parts(rank, one, [digest.format(rank) for digest in digests])

    skipped("DD206", Source.RUN, recorded(2, change))
