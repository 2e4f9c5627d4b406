from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.data import Worker
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


def test_one_state_on_every_rank_is_information():
    finding = only_finding("DD109", Source.RUN, dropping(lambda index, rank: f"state {index}"))
    assert finding.level is Level.INFO
    assert finding.headline == "ranks 0-1 draw the same dropout masks in each of 4 training steps"
    assert finding.where == where(48)


def test_states_of_their_own_pass():
    passed("DD109", Source.RUN, dropping(lambda index, rank: f"state {index} of {rank}"))


def test_workers_that_augment_alike_on_every_rank():
    workers = tuple(Worker(n, {"numpy": f"state {n}"}, drew=("numpy",)) for n in range(2))

    def change(rank, one):
        return replace(one, passes=tuple(replace(p, workers=workers) for p in one.passes))

    finding = only_finding("DD109", Source.RUN, recorded(change=change))
    assert finding.headline == "the DataLoader workers of ranks 0-1 draw the same random numbers from numpy"


def test_no_dropout_is_skipped():
    assert "no dropout is active" in skipped("DD109", Source.RUN, recorded()).reason
