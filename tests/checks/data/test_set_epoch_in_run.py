"""DD103 on a training run."""

from pathlib import Path

import pytest

from ddpdoctor.model import Level, Source, Where
from ddpdoctor.recorder.events.data import Sampler
from ddpdoctor.recorder.events.training import Wrapper
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import drawing
from tests.support.recordings import recorded, replace, where

ORDERS = ((4, 0, 6, 2), (2, 6, 0, 4), (0, 2, 4, 6))
LONG = (9, 4, 0, 6, 2, 8, 1, 3)
SMALL = {"batch_size": 2}


def sampler(epoch=0, **fields):
    return Sampler(
        **{"name": "DistributedSampler", "distributed": True, "shuffle": True, "epoch": epoch, **fields}
    )


def looping(*epochs, batch_size=2, **fields):
    """Training passes, each in the order of its epoch."""

    def change(rank, one):
        own = drawing(
            one,
            *(tuple(i + rank for i in ORDERS[epoch]) for epoch in epochs),
            loader={"batch_size": batch_size},
            **fields,
        )
        passes = tuple(
            replace(p, sampler=sampler(epoch)) for p, epoch in zip(own.passes, epochs, strict=True)
        )
        return replace(own, passes=passes)

    return recorded(change=change)


def test_an_epoch_that_never_changes():
    finding = only_finding("DD103", Source.RUN, looping(0, 0, 0))
    assert finding.headline == (
        "all 3 training passes use the same shuffle order on ranks 0-1: "
        "set_epoch never changed the epoch of DistributedSampler"
    )
    assert finding.level is Level.FAIL
    assert finding.where == where(45)
    assert finding.evidence[1].text == "each pass begins with samples 5, 1, 7, 3"


def test_set_epoch_that_comes_one_pass_late():
    finding = only_finding("DD103", Source.RUN, looping(0, 0, 1))
    assert finding.level is Level.WARN
    assert finding.headline == (
        "the first two of 3 training passes have the same order on ranks 0-1: set_epoch comes one pass late"
    )


def test_orders_of_their_own_pass():
    assert passed("DD103", Source.RUN, recorded()).text == (
        "each of 2 training passes over TensorDataset has a different order"
    )


def test_two_passes_an_epoch_over_one_order_are_right():
    passed("DD103", Source.RUN, looping(0, 0, 1, 1))


def test_one_epoch_is_skipped():
    assert skipped("DD103", Source.RUN, looping(0)).reason == "no DataLoader has a second training pass"


def test_evaluation_is_left_alone():
    skipped("DD103", Source.RUN, looping(0, 0, training=False, evaluation=True))


def test_one_example_before_the_loop_is_left_alone():
    def change(rank, one):
        own = drawing(one, ORDERS[0], ORDERS[0], sampler=sampler())
        first, second = own.passes
        return replace(own, passes=(replace(first, drawn=1, ended="left"), second))

    skipped("DD103", Source.RUN, recorded(change=change))


def test_one_batch_has_no_order():
    skipped("DD103", Source.RUN, looping(0, 0, batch_size=4))


@pytest.mark.parametrize("own", [sampler(shuffle=False), Sampler("SequentialSampler", shuffle=False)])
def test_no_shuffling_by_choice_is_right(own):
    trace = recorded(change=lambda rank, one: drawing(one, ORDERS[2], ORDERS[2], sampler=own, loader=SMALL))
    assert skipped("DD103", Source.RUN, trace).reason == "the samplers that train do not shuffle"


def test_a_sampler_of_the_scripts_own_that_shuffles():
    own = Sampler("GroupSampler", distributed=True, epoch=0)
    trace = recorded(change=lambda rank, one: drawing(one, ORDERS[0], ORDERS[0], sampler=own, loader=SMALL))
    assert "GroupSampler" in only_finding("DD103", Source.RUN, trace).headline


def test_a_sampler_of_the_scripts_own_that_does_not_shuffle_is_right():
    own = Sampler("StridedSampler", distributed=True, epoch=0)
    trace = recorded(change=lambda rank, one: drawing(one, ORDERS[2], ORDERS[2], sampler=own, loader=SMALL))
    skipped("DD103", Source.RUN, trace)


def test_few_samples_in_equal_order_may_be_chance_without_an_epoch():
    own = Sampler("RandomSampler", shuffle=True)
    few = recorded(change=lambda rank, one: drawing(one, ORDERS[0], ORDERS[0], sampler=own, loader=SMALL))
    passed("DD103", Source.RUN, few)
    many = recorded(change=lambda rank, one: drawing(one, LONG, LONG, sampler=own))
    only_finding("DD103", Source.RUN, many)


def anew(content, wrapper_between=False):
    """A loader and a sampler made anew, at the same line, for each of two passes."""

    def change(rank, one):
        own = drawing(one, ORDERS[0], ORDERS[0], sampler=sampler(), loader={"content": content, **SMALL})
        first, second = own.passes
        wrappers = (*own.wrappers, Wrapper(1, where(30), 2.0, "Linear")) if wrapper_between else own.wrappers
        return replace(
            own,
            loaders=(own.loaders[0], replace(own.loaders[0], index=1)),
            passes=(first, replace(second, loader=1, number=0)),
            wrappers=wrappers,
        )

    return recorded(change=change)


def test_a_loader_made_anew_for_each_epoch():
    only_finding("DD103", Source.RUN, anew("c0ffee"))


def test_a_loader_made_anew_for_another_model_or_unseen_data_is_left_alone():
    skipped("DD103", Source.RUN, anew("c0ffee", wrapper_between=True))
    skipped("DD103", Source.RUN, anew(None))


def test_two_samplers_that_one_loop_draws_from_are_one_finding():
    def change(rank, right):
        one_loader = looping(0, 0, 0).ranks[rank].recording
        second = replace(one_loader.loaders[0], index=1, at=where(41))
        again = tuple(replace(pass_, loader=1) for pass_ in one_loader.passes)
        return replace(one_loader, loaders=(*one_loader.loaders, second), passes=(*one_loader.passes, *again))

    finding = only_finding("DD103", Source.RUN, recorded(change=change))
    assert finding.headline == (
        "all 3 training passes over each of 2 DataLoaders use the same shuffle order on ranks 0-1: "
        "set_epoch never changed the epoch of DistributedSampler"
    )
    assert [subject.name for subject in finding.about] == ["train.py:40", "train.py:41"]


def begun_by(folder: Path, *lines: str, ended: str = "exhausted"):
    """Passes of one epoch, each begun by a line of its own."""
    file = folder / "train.py"
    file.write_text("\n".join(lines) + "\n")

    def change(rank, one):
        own = drawing(one, *(tuple(i + rank for i in ORDERS[0]) for _ in lines), loader=SMALL)
        passes = tuple(
            replace(
                pass_,
                at=Where(str(file), line, "<module>"),
                sampler=sampler(0),
                begin=10.0 * line,
                end=10.0 * line + 5,
                ended=ended,
            )
            for line, pass_ in enumerate(own.passes, 1)
        )
        return replace(own, passes=passes)

    return recorded(change=change)


def test_an_iterator_that_is_begun_anew_where_the_one_before_has_ended(tmp_path: Path):
    finding = only_finding("DD103", Source.RUN, begun_by(tmp_path, "b = iter(loader)", "b = iter(loader)"))
    assert finding.where is not None
    assert finding.where.line == 2


def test_loops_over_one_epoch_at_several_lines_are_left_alone(tmp_path: Path):
    skipped("DD103", Source.RUN, begun_by(tmp_path, "for b in loader: pass", "for c in loader: pass"))
    # The first was not drawn to its end.
    skipped("DD103", Source.RUN, begun_by(tmp_path, "b = iter(loader)", "c = iter(loader)", ended="left"))


def cycled(*inputs, **fields):
    """One pass of two batches, and training steps that go on without another."""

    def change(rank, recording):
        own = drawing(recording, LONG, loader=SMALL, **fields)
        steps = tuple(
            replace(step, forwards=(replace(step.forwards[0], input=content),))
            for step, content in zip(own.steps, inputs, strict=True)
        )
        return replace(own, steps=steps)

    return recorded(change=change)


def test_batches_of_one_pass_that_come_again_and_again():
    finding = only_finding("DD103", Source.RUN, cycled("a", "b", "a", "b"))
    assert finding.headline == (
        "ranks 0-1 repeat the batches of the first pass over TensorDataset, in the same order"
    )
    assert finding.where == where(45)


@pytest.mark.parametrize(
    ("inputs", "fields"),
    [
        (("a", "b", "b", "a"), {}),
        (("a", "b", "c", "d"), {}),
        (("a", "a", "a", "a"), {}),
        (("a", "b", "a", "b"), {"sampler": Sampler("SequentialSampler", shuffle=False)}),
        # Cut short: the whole run may end before the pass does.
        (("a", "b", "a", "b"), {"ended": "shortened", "batches": 100}),
    ],
)
def test_steps_behind_the_only_pass_that_repeat_no_order(inputs, fields):
    skipped("DD103", Source.RUN, cycled(*inputs, **fields))
