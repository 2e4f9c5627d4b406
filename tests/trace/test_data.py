"""Passes and splits, put together from events."""

from ddpdoctor.recorder.events.data import Batch, Integers, Loader, LoaderPass, Subset, Worker, WorkersStarted
from ddpdoctor.recorder.events.training import CopyForward
from ddpdoctor.trace.data import passes_of, splits_of
from ddpdoctor.trace.record import Record


def test_a_pass_has_its_batches_and_its_workers():
    iteration = LoaderPass(
        5, 0, 0, None, 1.0, 2.0, "exhausted", indices=Integers(2, (4, 6)), taken=2, steps=2
    )
    batches = Batch(5, 1, "aa", ("s0", "s1"), length=2), Batch(5, 2, "bb", length=1), Batch(5, 4)
    workers = Worker(0, {"torch": "x"}, pid=71), Worker(0, pid=99)
    (own,) = passes_of(
        Record.made(iteration, *batches, WorkersStarted(5, (71, 72))),
        [Record.made(one) for one in workers],
        (),
    )
    assert (own.content, own.samples, own.workers) == (("aa", "bb"), ("s0", "s1"), (workers[0],))
    assert (tuple(own.indices), own.drawn, own.ended, own.training) == ((4, 6), 2, "exhausted", True)
    assert own.length == 2


def test_a_pass_that_did_not_end_took_what_was_told_last():
    (own,) = passes_of(
        Record.made(LoaderPass(0, 0, 0, None, 1.0), Batch(0, 1), Batch(0, 2), Batch(0, 64)), [], ()
    )
    assert (own.drawn, own.ended, own.training, own.end) == (64, "open", False, None)


def test_a_split_has_several_parts_over_one_dataset():
    parts = [Subset(part, 3, 10, Integers(1, (part,))) for part in range(2)]
    alone = Subset(2, 4, 10, Integers(1, (7,)))
    (split,) = splits_of(Record.made(*parts, alone, Loader(6, None, "List", parts=(1,))))
    assert ([tuple(part) for part in split.parts], split.loaders, split.samples) == (
        [(0,), (1,)],
        (None, 6),
        10,
    )


def test_the_parts_of_a_random_split_belong_together():
    parts = [Subset(part, 3, 10, Integers(1, (part,)), group=part // 2) for part in range(4)]
    assert [len(split.parts) for split in splits_of(Record.made(*parts))] == [2, 2]


def test_a_pass_in_which_an_averaged_copy_is_called_evaluates():
    iterations = [LoaderPass(n, 0, n, None, 1.0 + 2 * n, 2.0 + 2 * n, "exhausted") for n in range(2)]
    before, evaluated = passes_of(Record.made(*iterations, CopyForward(0, 0, 3.5, None)), [], ())
    assert (before.evaluation, evaluated.evaluation) == (False, True)
