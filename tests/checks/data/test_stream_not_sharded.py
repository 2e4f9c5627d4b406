from ddpdoctor.model import Source
from ddpdoctor.recorder.events.data import Worker
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import drawing
from tests.support.recordings import recorded, replace, where

STREAM = {"streams": True, "samples": None, "dataset": "Lines"}


def streaming(content_of, **fields):
    def change(rank, one):
        own = drawing(one, (), loader=STREAM, indices=None, content=content_of(rank), **fields)
        return replace(own, passes=tuple(replace(p, sampler=None, drawn=2, batches=None) for p in own.passes))

    return recorded(change=change)


def test_the_same_batches_on_every_rank():
    finding = only_finding("DD102", Source.RUN, streaming(lambda rank: ("a", "b", "c")))
    assert finding.headline == "ranks 0-1 get the same first 3 batches from the stream Lines"
    assert finding.where == where(40)


def test_batches_of_each_ranks_own_pass():
    said = passed("DD102", Source.RUN, streaming(lambda rank: (f"a{rank}", f"b{rank}")))
    assert said.text == "ranks 0-1 get different batches from Lines"


def test_one_batch_again_and_again_is_right():
    passed("DD102", Source.RUN, streaming(lambda rank: ("a", "a", "a")))


def test_the_same_samples_in_the_workers_of_every_rank():
    workers = tuple(Worker(number, samples=(f"s{number}", f"t{number}")) for number in range(2))

    def change(rank, one):
        own = drawing(one, (), loader=STREAM, indices=None, workers=workers)
        return replace(own, passes=tuple(replace(p, drawn=2) for p in own.passes))

    finding = only_finding("DD102", Source.RUN, recorded(change=change))
    assert finding.headline == "ranks 0-1 get the same first samples from the stream Lines"


def shuffled(samples_of):
    def change(rank, one):
        own = drawing(one, (), loader=STREAM, indices=None, samples=samples_of(rank), content=(f"b{rank}",))
        return replace(own, passes=tuple(replace(p, drawn=2) for p in own.passes))

    return recorded(change=change)


def test_the_same_samples_in_an_order_of_each_ranks_own():
    orders = ("abcdefgh", "hcxayfzw")
    finding = only_finding("DD102", Source.RUN, shuffled(lambda rank: tuple(orders[rank])))
    assert finding.headline == "ranks 0-1 get 4 of their first 8 samples in common from the stream Lines"
    assert "rng = random.Random(seed + epoch)" in finding.fix
    finding = only_finding("DD102", Source.RUN, shuffled(lambda rank: tuple("abcdefgh"[:: 1 - 2 * rank])))
    assert finding.headline == "ranks 0-1 get the same first samples from the stream Lines"


def test_few_values_that_come_again_are_right():
    passed("DD102", Source.RUN, shuffled(lambda rank: tuple("abcdabcd")))


def test_what_was_not_seen_is_skipped():
    assert (
        skipped("DD102", Source.RUN, streaming(lambda rank: ())).reason
        == "the samples of the stream were not recorded"
    )


def test_no_stream_is_skipped():
    assert skipped("DD102", Source.RUN, recorded()).reason == "no rank trains on an IterableDataset"
