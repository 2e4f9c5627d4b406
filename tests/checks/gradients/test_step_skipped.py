from ddpdoctor.model import Source
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, step, where
from tests.support.training import LINE_OF_UPDATE, backward, raising


def one_less(rank, one, *, backwards=True):
    """Rank 1 leaves out the update of step 2, after its backward."""
    if rank != 1:
        return one
    first, second, third, fourth = one.steps
    merged = replace(fourth, index=2, backwards=((*third.backwards,) if backwards else ()) + fourth.backwards)
    return replace(one, steps=(first, second, merged), step_count=3)


def test_the_rank_with_fewer_updates():
    finding = only_finding("DD225", Source.RUN, recorded(3, one_less))
    assert finding.headline == "rank 1 took 3 optimizer steps, the other ranks 4"
    assert finding.ranks == (1,)
    assert finding.where == where(LINE_OF_UPDATE)
    assert finding.evidence[1].text == "3 optimizer steps in 4 backwards"


def test_a_rank_that_never_updates():
    def change(rank, one):
        if rank == 0:
            return one
        waiting = step(0, optimizer_steps=(), backwards=tuple(backward(n + 0.5, 0) for n in range(4)))
        return replace(one, steps=(), step_count=0, trailing=waiting)

    finding = only_finding("DD225", Source.RUN, recorded(2, change))
    assert finding.headline == "rank 1 took 0 optimizer steps, the other ranks 4"


def test_fewer_batches_are_another_disease():
    trace = recorded(2, lambda rank, one: one_less(rank, one, backwards=False))
    assert skipped("DD225", Source.RUN, trace).reason == "ranks ran different numbers of batches"


def test_a_join_and_a_broken_run_are_left_alone():
    def joined(rank, one):
        one = one_less(rank, one)
        return replace(one, steps=tuple(replace(own, joined=True) for own in one.steps))

    assert "Join" in skipped("DD225", Source.RUN, recorded(2, joined)).reason
    assert (
        skipped("DD225", Source.RUN, raising("no", change=one_less)).reason
        == "rank 0 of the training run broke"
    )


def test_equal_numbers_pass():
    assert passed("DD225", Source.RUN, recorded()).text == "every rank took 4 training steps"
