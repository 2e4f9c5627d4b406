"""DD106 on a training run."""

import pytest

from ddpdoctor.blame.frames import Failure
from ddpdoctor.model import Confidence, Source, Where
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.recorder.events.training import Backward, Collective, Forward
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import evaluating
from tests.support.recordings import recorded, replace, step, where


def uneven(*counts, change=None, **fields):
    """One training pass with these numbers of batches."""

    def of(rank, one):
        own = replace(one.passes[0], **{"batches": counts[rank], "drawn": min(counts), **fields})
        made = replace(one, passes=(own,))
        return change(rank, made) if change else made

    return recorded(len(counts), of)


def test_a_rank_with_one_batch_more():
    finding = only_finding("DD106", Source.RUN, uneven(4, 3, 3, ended="open"))
    assert finding.headline == (
        "rank 0 runs 4 batches in a pass, ranks 1-2 only 3: the others wait in batch 4"
    )
    assert finding.ranks == (1, 2)
    assert finding.confidence is Confidence.CERTAIN
    assert [(one.text, one.ranks) for one in finding.evidence] == [
        ("4 batches in its shard", (0,)),
        ("3 batches in its shard", (1, 2)),
    ]


def test_a_pass_that_was_cut_short_is_predicted():
    finding = only_finding("DD106", Source.RUN, uneven(100, 99, ended="shortened", drawn=8))
    assert finding.confidence is Confidence.LIKELY


def test_a_rank_without_a_batch():
    def empty(rank, one):
        return replace(one, passes=tuple(replace(p, training=rank == 0) for p in one.passes))

    finding = only_finding("DD106", Source.RUN, uneven(1, 0, change=empty, ended="open"))
    assert finding.headline.startswith("rank 0 runs 1 batch in a pass, rank 1 only 0")


def test_a_stream_that_ended_unevenly():
    def streamed(rank, one):
        own = replace(one.passes[0], batches=None, drawn=4 - rank, ended="exhausted")
        return replace(one, passes=(own,))

    only_finding("DD106", Source.RUN, recorded(change=streamed))


def broken_stream(*drawn, ended="exhausted", changed=lambda rank, one: one):
    """Streams of unknown length: the first rank is still in its pass when it loses the last, which ended."""

    def of(rank, one):
        last = rank == len(drawn) - 1
        own = replace(one.passes[0], batches=None, drawn=drawn[rank], ended=ended if last else "left")
        return changed(rank, replace(one, passes=(own,), raised=None if last else gone))

    gone = Raised("RuntimeError", "Connection closed by peer", 5.0)
    lost = Failure("RuntimeError", "Connection closed by peer", "", 5.0)
    trace = recorded(len(drawn), of)
    return replace(trace, ranks=(replace(trace.ranks[0], failure=lost, finished=False), *trace.ranks[1:]))


def test_a_stream_that_ended_before_the_others():
    finding = only_finding("DD106", Source.RUN, broken_stream(7, 6))
    assert finding.headline == (
        "rank 0 runs 7 batches or more in a pass, rank 1 only 6: the others wait in batch 7"
    )
    assert finding.ranks == (1,)


def test_a_later_pass_over_what_each_rank_has_chosen():
    """After a pass over as many samples on all ranks, each goes on with those that are hard for its model."""

    def chosen(rank, one):
        before = replace(one.passes[0], number=0, begin=0.01, batches=2, drawn=2, end=0.05, ended="exhausted")
        after = replace(one.passes[0], number=0, loader=5, batches=7 - rank)
        loaders = (one.loaders[0], replace(one.loaders[0], index=5, samples=28 - 4 * rank))
        return replace(one, loaders=loaders, passes=(before, after))

    finding = only_finding("DD106", Source.RUN, broken_stream(7, 6, changed=chosen))
    assert finding.headline == "rank 0 runs 7 batches in a pass, rank 1 only 6: the others wait in batch 7"


def test_a_pass_that_all_ranks_came_through_is_not_where_the_run_broke():
    def later(rank, one):
        early = replace(one.passes[0], number=0, begin=0.01, batches=7 - rank, drawn=7 - rank, end=6.0)
        after = replace(early, number=1, begin=6.1, end=None, ended="open", drawn=3)
        return accumulating(2)(rank, replace(one, passes=(replace(early, ended="exhausted"), after)))

    passed("DD106", Source.RUN, broken_stream(7, 6, changed=later))


def test_a_broken_pass_in_which_all_ranks_average_as_often_is_right():
    def chosen(rank, one):
        loaders = (replace(one.loaders[0], samples=28 - 4 * rank),)
        made = replace(one, loaders=loaders, passes=(replace(one.passes[0], batches=9 - rank),))
        return accumulating(4)(rank, made)

    passed("DD106", Source.RUN, broken_stream(9, 8, changed=chosen))


def test_a_stream_that_was_left_is_another_disease():
    skipped("DD106", Source.RUN, broken_stream(7, 6, ended="left"))


def test_even_batches_pass():
    assert passed("DD106", Source.RUN, recorded()).text == "ranks 0-1 have 2 batches each in a pass"


def test_join_passes():
    def joined(rank, one):
        return replace(one, steps=tuple(replace(s, joined=True) for s in one.steps))

    assert "under Join" in passed("DD106", Source.RUN, uneven(4, 3, change=joined, ended="exhausted")).text


def left_by_flag(rank, one):
    own = replace(one.passes[0], ended="exhausted" if rank else "left", drawn=3 if rank else 4)
    return replace(one, passes=(own,))


def test_a_loop_that_all_ranks_leave_together_is_right():
    passed("DD106", Source.RUN, uneven(5, 3, change=left_by_flag))
    passed("DD106", Source.RUN, uneven(100, 99, ended="left", drawn=50))


def test_a_loop_that_an_exception_left_is_not():
    def raised(rank, one):
        gone = Raised("RuntimeError", "Connection closed by peer", 5.0)
        return replace(left_by_flag(rank, one), raised=None if rank else gone)

    only_finding("DD106", Source.RUN, uneven(5, 3, change=raised))


def asking(call):
    """Cut short; with a collective before the forward of each step."""

    def change(rank, one):
        own = replace(one.passes[0], end=9.0)
        steps = tuple(replace(s, collectives=(replace(call, time=s.index + 0.15),)) for s in one.steps)
        return replace(one, passes=(own,), steps=steps)

    return uneven(100, 99, change=change, ended="shortened", drawn=4)


def test_a_flag_that_is_asked_in_each_step_is_right():
    passed("DD106", Source.RUN, asking(Collective(0.0, where(44), "all_reduce", shape=(1,), reduce="min")))


def test_a_large_collective_in_each_step_is_no_flag():
    only_finding("DD106", Source.RUN, asking(Collective(0.0, where(44), "all_reduce", shape=(8, 4))))


@pytest.mark.parametrize(
    "call",
    [
        Collective(0.05, where(44), "all_reduce", shape=(), dtype="int64", reduce="min"),
        Collective(0.05, where(44), "all_gather", shape=(1,), dtype="int64"),
    ],
)
def test_a_count_that_is_agreed_before_the_pass_is_right(call):
    def change(rank, one):
        return replace(one, collectives=(call,))

    passed("DD106", Source.RUN, uneven(100, 99, change=change, ended="shortened"))


@pytest.mark.parametrize(
    ("number", "is_length"),
    [
        ("len(batches)", True),
        ("sum(1 for _ in range(len(batches)))", True),
        ("steps_of(batches)", True),
        ("batches_left", False),
        ("time.time()", False),
    ],
)
def test_a_smallest_number_agrees_on_batches_only_where_it_is_made_of_lengths(tmp_path, number, is_length):
    script = tmp_path / "train.py"
    script.write_text(
        "import time, torch, torch.distributed as dist\n"
        "def steps_of(given): return len(given) // 4\n"
        f"batches_left = 3.5; n = torch.tensor([{number}])\n"
        "dist.all_reduce(n, op=dist.ReduceOp.MIN)\n"
    )
    call = Collective(0.05, Where(str(script), 4), "all_reduce", shape=(1,), reduce="min")
    trace = uneven(
        100, 99, change=lambda rank, one: replace(one, collectives=(call,)), ended="shortened", drawn=8
    )
    (passed if is_length else only_finding)("DD106", Source.RUN, trace)


def accumulating(windows):
    def change(rank, one):
        backwards = tuple(
            Backward(0.3 + n / 10, where(49), (0,) if n == windows - 1 else ()) for n in range(windows)
        )
        forwards = tuple(Forward(0.2 + n / 10, where(48), 0) for n in range(windows))
        return replace(one, steps=(step(0, forwards=forwards, backwards=backwards),))

    return change


def test_a_micro_batch_more_that_is_not_reduced_is_right():
    passed("DD106", Source.RUN, uneven(9, 8, change=accumulating(4), ended="shortened"))
    only_finding("DD106", Source.RUN, uneven(12, 11, change=accumulating(4), ended="shortened"))


def test_ranks_that_do_not_wait_for_each_other_are_skipped():
    def alone(rank, one):
        return replace(one, wrappers=())

    assert "do not wait" in skipped("DD106", Source.RUN, uneven(4, 3, change=alone)).reason


def test_unknown_numbers_are_skipped():
    def unknown(rank, one):
        return replace(one, passes=tuple(replace(p, batches=None, ended="shortened") for p in one.passes))

    assert "cannot be known" in skipped("DD106", Source.RUN, recorded(change=unknown)).reason


def evaluated(calls_of, *, begin=10.0, **left):
    """An evaluation of 4 batches on rank 0 and 3 on rank 1, in which each rank makes so many calls on one line."""

    def change(rank, one):
        made = evaluating(one, range(rank, 16, 2), begin)
        counts = {"batches": 4 - rank, "drawn": 4 - rank, "end": None if rank == 0 else 11.0, "ended": "open"}
        calls = tuple(
            Collective(10.1 + n / 10, where(65), "all_reduce", shape=(1,)) for n in range(calls_of(rank))
        )
        passes = (*made.passes[:-1], replace(made.passes[-1], **{**counts, **left}))
        raised = gone if left else None
        return accumulating(8)(rank, replace(made, passes=passes, collectives=calls, raised=raised))

    gone = Raised("ValueError", "no such file", 20.0)

    return recorded(change=change)


def test_an_evaluation_with_a_collective_in_each_batch_stalls_too():
    finding = only_finding("DD106", Source.RUN, evaluated(lambda rank: 3))
    assert finding.headline == "rank 0 runs 4 batches in a pass, rank 1 only 3: the others wait in batch 4"


def test_an_evaluation_that_is_reduced_once_does_not():
    passed("DD106", Source.RUN, evaluated(lambda rank: 1))


@pytest.mark.parametrize("end", [11.0, None])
def test_an_evaluation_that_all_ranks_leave_in_the_same_batch_does_not(end):
    ended = "open" if end is None else "left"
    passed("DD106", Source.RUN, evaluated(lambda rank: 2, end=end, ended=ended, drawn=2))


def test_collectives_of_training_are_not_those_of_an_evaluation_that_was_left_before():
    """Its pass has no end, as persistent workers keep the iterator."""
    passed("DD106", Source.RUN, evaluated(lambda rank: 3, begin=0.0))
