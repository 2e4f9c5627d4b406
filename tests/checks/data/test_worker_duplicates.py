from ddpdoctor.model import Source
from ddpdoctor.recorder.events.data import Worker
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where


def working(*workers, streams=False):
    def change(rank, one):
        loader = replace(one.loaders[0], streams=streams, dataset="Lines")
        return replace(one, loaders=(loader,), passes=tuple(replace(p, workers=workers) for p in one.passes))

    return recorded(change=change)


def worker(number, *samples, state=None, drew=("numpy",)):
    return Worker(number, {"numpy": state or f"state {number}"}, samples, drew)


def test_workers_that_yield_the_same_samples():
    finding = only_finding(
        "DD108", Source.RUN, working(worker(0, "a", "b"), worker(1, "a", "b"), streams=True)
    )
    assert finding.headline == "workers 0 and 1 of ranks 0-1 yield the same samples of Lines"
    assert finding.where == where(40)


def test_a_divided_stream_passes():
    said = passed("DD108", Source.RUN, working(worker(0, "a", "b"), worker(1, "c", "d"), streams=True))
    assert said.text == "2 workers of Lines do not repeat each other"


def test_one_sample_that_occurs_twice_is_right():
    passed("DD108", Source.RUN, working(worker(0, "a", "b"), worker(1, "b", "c"), streams=True))


def test_data_whose_samples_repeat_is_right():
    """Each worker has samples twice by itself, so two in common with another prove nothing."""
    trace = working(worker(0, *"aabcdefg"), worker(1, *"abxxyzuv"), streams=True)
    passed("DD108", Source.RUN, trace)


def test_workers_that_repeat_each_other_and_themselves():
    trace = working(worker(0, *"aabcdefg"), worker(1, *"aabcdefg"), streams=True)
    only_finding("DD108", Source.RUN, trace)


def test_one_seed_for_all_workers():
    trace = working(worker(0, state="s"), worker(1, state="s"))
    assert only_finding("DD108", Source.RUN, trace).headline == (
        "the 2 workers of each of ranks 0-1 draw the same random numbers from numpy"
    )


def test_one_seed_for_workers_that_draw_nothing_is_right():
    passed("DD108", Source.RUN, working(worker(0, state="s", drew=()), worker(1, state="s", drew=())))


def test_equal_samples_of_a_dataset_with_numbers_are_its_own():
    passed("DD108", Source.RUN, working(worker(0, "a", "a"), worker(1, "a", "a")))


def test_one_worker_is_skipped():
    assert (
        skipped("DD108", Source.RUN, working(worker(0))).reason == "no training pass has more than one worker"
    )
