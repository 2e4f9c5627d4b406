"""In which line gloo aborted a rank."""

import pytest

from ddpdoctor.recorder.events.training import Backward, Collective, Forward, Parameter, Wrapper
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.gloo import aborted_calls
from ddpdoctor.trace.recording import Recording
from tests.support.recordings import recorded, recording, replace, where


def reduced(line: int, *shape: int, time: float = 0.1, **more: object) -> Collective:
    return Collective(time, where(line), "all_reduce", shape=shape, dtype="float32", **more)


def aborted(
    message: str,
    *calls: Collective,
    of_others: tuple[Collective, ...] = (),
    rank: int = 1,
    wrappers: tuple[Wrapper, ...] = recording(0).wrappers,
) -> Trace:
    """Three ranks in their fifth step, of which gloo aborted one."""
    fifth = TrainingStep(4, 11.0, forwards=(Forward(11.0, where(48), 0),))

    def change(number: int, one: Recording) -> Recording:
        made = calls if number == rank else of_others
        return replace(one, trailing=fifth, exit=None, collectives=made, wrappers=wrappers)

    trace = recorded(3, change=change)
    said = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
        f"  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. {message}. Received data",
    )
    ranks = [
        replace(one, exit_code=-6, output=said, finished=False) if one.rank == rank else one
        for one in trace.ranks
    ]
    return replace(trace, ranks=tuple(ranks), status=1)


def lines(trace: Trace) -> dict[int, int | None]:
    return {rank: call.at and call.at.line for rank, call in aborted_calls(trace).items()}


def test_the_line_of_the_collective_that_expects_as_many_bytes():
    assert lines(aborted("8 vs 4", reduced(60), reduced(62, 500))) == {1: 60}


def test_the_backward_whose_buckets_take_as_many_bytes():
    trace = aborted("668 vs 8", reduced(60), of_others=(reduced(60), reduced(62, 1000)))
    assert lines(trace) == {1: 49}
    assert isinstance(aborted_calls(trace)[1], Backward)


def test_the_first_backward_of_which_no_line_is_known():
    trace = aborted("668 vs 8", of_others=(reduced(62, 1000),))
    without = replace(trace.ranks[1].recording, steps=(), step_count=0)
    ranks = (trace.ranks[0], replace(trace.ranks[1], recording=without), trace.ranks[2])
    assert lines(replace(trace, ranks=ranks)) == {1: None}


def test_two_lines_that_expect_as_many_bytes():
    assert lines(aborted("8 vs 4", reduced(60), reduced(62, 1))) == {}


def test_no_line_expects_as_many_bytes():
    assert lines(aborted("8 vs 4", reduced(60, 500))) == {}
    assert lines(aborted("12 vs 4", reduced(60))) == {}  # nor does the other rank send them


def test_a_call_that_the_record_shows_needs_no_placing():
    assert lines(aborted("8 vs 4", reduced(60), reduced(62, 1, time=11.5, ended=False))) == {}


def test_an_asynchronous_call_may_be_under_way_after_its_end():
    assert lines(aborted("8 vs 4", reduced(60, time=11.5))) == {}


def test_what_no_other_rank_or_no_message_tells():
    trace = aborted("8 vs 4", reduced(60))
    silent = replace(trace.ranks[1], output=trace.ranks[1].output[:1])
    assert lines(replace(trace, ranks=(trace.ranks[0], silent, trace.ranks[2]))) == {}
    unknown = replace(trace.ranks[2], recording=None)
    assert lines(replace(trace, ranks=(*trace.ranks[:2], unknown))) == {}


def test_a_hook_of_the_wrapper_sends_what_it_likes():
    hooked = tuple(replace(wrapper, hook="fp16_compress_hook") for wrapper in recording(0).wrappers)
    assert lines(aborted("668 vs 4", reduced(60), of_others=(reduced(62, 1000),))) == {1: 60}
    assert lines(aborted("668 vs 4", reduced(60), of_others=(reduced(62, 1000),), wrappers=hooked)) == {}


def test_the_first_bucket_of_a_large_model_sends_more_than_is_expected():
    """As gloo said of it, in a step after the first, when gradients are in the order in which they come."""
    shapes = ((600, 8), (600,), (600, 600), (600,), (1, 600), (1,))
    parameters = tuple(Parameter(f"{n}", shape, "float32") for n, shape in enumerate(shapes))
    large = replace(recording(0).wrappers[0], parameters=parameters)
    assert lines(aborted("240804 vs 4", reduced(60), rank=0, wrappers=(large,))) == {0: 60}
    assert lines(aborted("240804 vs 4", reduced(60), rank=0)) == {}


@pytest.mark.parametrize(
    ("rank", "taken", "sent", "message"),
    [
        # As gloo of torch 2.13 said on three ranks.
        (0, 9, 1000, "668 vs 4"),
        (2, 9, 1000, "668 vs 8"),
        (1, 1, 9, "8 vs 4"),
        (0, 2, 9, "8 vs 4"),
        (1, 2, 9, "8 vs 4"),
    ],
)
def test_the_sizes_of_gloos_segments(rank: int, taken: int, sent: int, message: str):
    trace = aborted(message, reduced(60, taken), of_others=(reduced(62, sent),), rank=rank, wrappers=())
    assert lines(trace) == {rank: 60}
