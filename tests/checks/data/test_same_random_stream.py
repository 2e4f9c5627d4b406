import pytest

from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.data import Worker
from ddpdoctor.recorder.events.training import Drawn, Draws
from ddpdoctor.recorder.patches.calls import Seeded
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where


def dropping(state_of):
    def change(rank, one):
        steps = tuple(
            replace(s, forwards=tuple(replace(f, random=state_of(s.index, rank)) for f in s.forwards))
            for s in one.steps
        )
        return replace(one, steps=steps)

    return recorded(change=change)


def drawing(drawn, *seeds):
    """Steps that draw; ``drawn`` gives, for a step and a rank, the state before, after, and the numbers drawn."""

    def change(rank, one):
        steps = tuple(
            replace(s, draws=(Drawn(where(47), False, {"torch": Draws(*drawn(s.index, rank))}),))
            for s in one.steps
        )
        return replace(one, steps=steps, record=Record.made(*(seed(rank) for seed in seeds)))

    return recorded(change=change)


def loading(drew, workers=0):
    """Passes whose samples are loaded in the main process; ``drew`` gives what each of two batches drew on a rank."""

    def change(rank, one):
        draws = tuple({"numpy": Draws(*drew(batch, rank))} for batch in range(2))
        return replace(one, passes=tuple(replace(p, draws=draws) for p in one.passes))

    return recorded(change=change)


def test_one_state_on_every_rank_is_information():
    finding = only_finding("DD109", Source.RUN, dropping(lambda index, rank: f"state {index}"))
    assert finding.level is Level.INFO
    assert finding.headline == "ranks 0-1 draw the same dropout masks in each of 4 training steps"
    assert finding.where == where(48)


def test_states_of_their_own_pass():
    verdict = passed("DD109", Source.RUN, dropping(lambda index, rank: f"state {index} of {rank}"))
    assert verdict.text == "each rank draws different random numbers: dropout"


def test_noise_that_is_alike_on_every_rank():
    finding = only_finding("DD109", Source.RUN, drawing(lambda step, _: (f"{step}", f"{step + 1}", 8)))
    assert finding.level is Level.INFO
    assert finding.headline == (
        "ranks 0-1 draw the same random numbers from torch in each of 4 training steps, outside its forward"
    )
    assert finding.where == where(47)


@pytest.mark.parametrize(("value", "line"), [(lambda rank: 7, 12), (lambda rank: 7 + rank, 47)])
def test_the_seed_that_all_ranks_share_is_the_line_to_change(value, line):
    trace = drawing(
        lambda step, _: (f"{step}", f"{step + 1}", 8),
        lambda rank: Seeded(-1.0, "torch", value(rank), where(12)),
    )
    finding = only_finding("DD109", Source.RUN, trace)
    assert finding.where == where(line)


@pytest.mark.parametrize(
    "drawn",
    [
        pytest.param(lambda step, rank: (f"{step} {rank}", f"{step + 1} {rank}", 8), id="own streams"),
        pytest.param(
            lambda step, rank: (f"{step}", f"{step + 1} {rank}", 624), id="seeded anew by each rank"
        ),
    ],
)
def test_noise_of_each_rank_passes(drawn):
    verdict = passed("DD109", Source.RUN, drawing(drawn))
    assert verdict.text == "each rank draws different random numbers: what a training step draws"


def test_a_number_for_the_whole_batch_may_have_to_be_alike():
    """It chooses a branch; the generator made new numbers in advance in one of the steps."""
    trace = drawing(lambda step, _: (f"{step}", f"{step + 1}", 1 if step else 624))
    assert "for each sample" in skipped("DD109", Source.RUN, trace).reason


def test_datasets_that_augment_alike_in_the_main_process():
    finding = only_finding("DD109", Source.RUN, loading(lambda batch, _: (f"{batch}", f"{batch + 1}", 4)))
    assert finding.level is Level.INFO
    assert finding.headline == "the datasets of ranks 0-1 draw the same random numbers from numpy"
    assert "numpy.random.seed" in finding.fix
    assert finding.where == where(40)


def test_datasets_that_augment_differently_pass():
    passed("DD109", Source.RUN, loading(lambda batch, rank: (f"{batch}", f"{batch + 1} {rank}", 4)))


def in_workers(generator):
    workers = tuple(Worker(n, {generator: f"state {n}"}, drew=(generator,)) for n in range(2))

    def change(rank, one):
        return replace(one, passes=tuple(replace(p, workers=workers) for p in one.passes))

    return recorded(change=change)


def test_workers_that_augment_alike_on_every_rank():
    finding = only_finding("DD109", Source.RUN, in_workers("numpy"))
    assert finding.headline == "the DataLoader workers of ranks 0-1 draw the same random numbers from numpy"


def test_generators_of_the_script_s_own_are_not_compared():
    skipped("DD109", Source.RUN, in_workers("Samples.rng"))


def test_a_run_that_draws_nothing_is_skipped():
    assert "neither dropout, nor loading" in skipped("DD109", Source.RUN, recorded()).reason
