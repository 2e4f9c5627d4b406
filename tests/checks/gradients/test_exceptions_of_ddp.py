"""DD213, DD215 and DD222: exceptions that DDP's gradients end in."""

from ddpdoctor import registry
from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Collective
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, step, where
from tests.support.training import LINE_OF_FORWARD, forward, raising

READY = (
    "Expected to mark a variable ready only once. This error is caused by ...\n"
    "Parameter at index 1 has been marked as ready twice."
)
CHANGED = (
    "Your training graph has changed in this iteration, e.g., one parameter is unused in first iteration, ..."
)
IN_PLACE = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [8]] is at version 3; expected version 2 instead."
)


def test_the_parameter_behind_the_index_is_named():
    finding = only_finding("DD213", Source.RUN, raising(READY))
    assert finding.headline == "the gradient of bias arrived twice in one backward on ranks 0-1"
    assert finding.where == where(LINE_OF_FORWARD)


def test_a_name_in_the_message_is_taken():
    text = READY.replace("index 1 has", "index 1 with name body.weight has")
    assert "body.weight" in only_finding("DD213", Source.RUN, raising(text)).headline


def test_a_rank_that_lost_its_peer_met_the_same():
    assert only_finding("DD213", Source.RUN, raising(READY, ranks=(0,))).ranks == (0, 1)


def test_nothing_raised_passes():
    assert passed("DD213", Source.RUN, recorded()).text == "no gradient arrived twice in a backward"


def test_a_graph_that_changed():
    finding = only_finding("DD222", Source.RUN, raising(CHANGED))
    assert finding.headline == "the graph of a model wrapped with static_graph=True changed on ranks 0-1"


def test_no_static_graph_is_skipped_and_one_that_stayed_passes():
    assert skipped("DD222", Source.RUN, recorded()).reason == "no wrapper has static_graph=True"
    flagged = recorded(
        2, lambda r, one: replace(one, wrappers=(replace(one.wrappers[0], flags={"static_graph": True}),))
    )
    assert passed("DD222", Source.RUN, flagged).text


def with_buffers(one, *, collectives=(), forwards=2, **flags):
    wrapper = replace(one.wrappers[0], buffers=("norm.running_mean",), flags=flags)
    trailing = step(
        9,
        forwards=tuple(forward(9.1 + n / 10) for n in range(forwards)),
        backwards=(),
        optimizer_steps=(),
        collectives=collectives,
    )
    return replace(one, wrappers=(wrapper,), trailing=trailing)


def test_two_forwards_before_a_backward():
    trace = raising(IN_PLACE, change=lambda r, one: with_buffers(one, broadcast_buffers=True))
    finding = only_finding("DD215", Source.RUN, trace)
    assert finding.headline == (
        "a second forward of Linear overwrote 1 buffer before the backward of the forward that used them on ranks 0-1"
    )
    assert finding.evidence[-1].text == "buffers: norm.running_mean"


def test_a_broadcast_by_the_script():
    by = Collective(9.5, where(60), "broadcast", shape=(8,))
    trace = raising(
        IN_PLACE,
        change=lambda r, one: with_buffers(one, collectives=(by,), forwards=1, broadcast_buffers=False),
    )
    assert only_finding("DD215", Source.RUN, trace).headline.startswith("a broadcast of buffers overwrote")


def test_an_operation_of_the_scripts_own_is_left_to_others():
    trace = raising(IN_PLACE, change=lambda r, one: with_buffers(one, broadcast_buffers=False))
    passed("DD215", Source.RUN, trace)
    owner = registry.by_exception(f"RuntimeError: {IN_PLACE}")
    assert owner is None or owner.code != "DD215"


def test_no_buffers_are_skipped():
    assert skipped("DD215", Source.RUN, recorded()).reason == "no wrapped module has buffers"
