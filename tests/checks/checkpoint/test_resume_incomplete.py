from pathlib import Path

import pytest

from ddpdoctor.model import Finding, Source, Where
from ddpdoctor.recorder.events.files import Load, Save, StateLoad
from ddpdoctor.recorder.loop_numbers import LoopNumbers
from ddpdoctor.trace.record import Record
from tests.support.judging import check, only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import with_update

ENTRIES = ("model", "optimizer", "scheduler", "epoch")
LOAD = Load("/jobs/last.pt", where(60), -1.0, -0.9, entries=ENTRIES, states=("optimizer", "scheduler"))
SAVE = Save("/jobs/last.pt", where(80), 20.0, 20.1, entries=ENTRIES)


def state(kind):
    return StateLoad(kind, kind.title(), where(61), -0.5, matched=2)


def resuming(*kinds, load=LOAD, saves=(SAVE,), change=None):
    def of(rank, one):
        made = replace(one, loads=(load,), saves=saves, state_loads=tuple(map(state, kinds)))
        return change(rank, made) if change else made

    return recorded(change=of)


def test_an_optimizer_that_was_left_behind():
    finding = only_finding("DD405", Source.RUN, resuming("module"))
    assert finding.headline == (
        "ranks 0-1 resume from 'last.pt' without the optimizer and scheduler state that it holds"
    )
    assert finding.where == where(61)
    assert finding.evidence[0].text == "holds model, optimizer, scheduler, epoch; restored: module"


def test_rank_0_alone_saves():
    def readers(rank, one):
        return replace(one, saves=one.saves if rank == 0 else ())

    assert only_finding("DD405", Source.RUN, resuming("module", change=readers)).ranks == (0, 1)


def test_a_part_that_was_left_behind_though_others_were_restored():
    finding = only_finding("DD405", Source.RUN, resuming("module", "optimizer", saves=()))
    assert finding.headline.endswith("without the scheduler state that it holds")


def test_one_rank_that_restores_less():
    def less(rank, one):
        return replace(one, state_loads=one.state_loads[: 3 - rank])

    finding = only_finding("DD405", Source.RUN, resuming("module", "optimizer", "scheduler", change=less))
    assert finding.ranks == (1,)


def test_an_optimizer_that_rank_0_alone_restores_is_the_cause_of_unequal_rates():
    def change(rank, recording):
        load = replace(LOAD, entries=("model", "optimizer", "epoch"), states=("optimizer",))
        states = (state("module"), replace(state("optimizer"), at=where(63)))
        rates = (with_update(step, hyperparameters=({"lr": rank},)) for step in recording.steps)
        return replace(
            recording, loads=(load,), saves=(SAVE,), state_loads=states[: 2 - rank], steps=tuple(rates)
        )

    trace = recorded(change=change)
    assert only_finding("DD405", Source.RUN, trace).where == where(63)
    assert only_finding("DD208", Source.RUN, trace).explained_by == ("DD405",)


def beginning_again(held, saved):
    """Everything is restored, the first pass has epoch 0, and one with epoch 1 is done when the script saves."""

    def change(rank, one):
        epochs = (replace(it, sampler=replace(it.sampler, epoch=n)) for n, it in enumerate(one.passes))
        return replace(one, passes=tuple(epochs))

    load, save = replace(LOAD, numbers=held), replace(SAVE, numbers=saved)
    return resuming("module", "optimizer", "scheduler", load=load, saves=(save,), change=change)


@pytest.mark.parametrize("name", ["epoch", "n", "max_so_far"])
@pytest.mark.parametrize("saved", [1, 2])
def test_a_sampler_that_begins_again(name, saved):
    trace = beginning_again({name: 3, "seed": 0}, {name: saved, "seed": 0})
    finding = only_finding("DD405", Source.RUN, trace)
    assert finding.headline == (
        "the sampler of ranks 0-1 begins again at epoch 0 after resuming from epoch 3 of 'last.pt'"
    )
    assert finding.where == where(45)


@pytest.mark.parametrize("saved", [{}, {"epoch": 3}, {"epoch": 9}])
def test_a_number_that_does_not_follow_the_epochs_is_none(saved):
    passed("DD405", Source.RUN, beginning_again({"epoch": 3}, saved))


def test_everything_restored_passes():
    said = passed("DD405", Source.RUN, resuming("module", "optimizer", "scheduler"))
    assert said.text == "training went on from a checkpoint with module, optimizer, scheduler restored"


def test_fine_tuning_from_weights_is_right():
    skipped("DD405", Source.RUN, resuming("module", saves=()))
    elsewhere = replace(SAVE, path="/jobs/runs/last.pt")
    skipped("DD405", Source.RUN, resuming("module", saves=(elsewhere,)))


def test_fine_tuning_with_a_new_head_is_right():
    def new_head(rank, one):
        return replace(one, state_loads=(replace(one.state_loads[0], missing=("head.weight",)),))

    skipped("DD405", Source.RUN, resuming("module", change=new_head))


def test_a_file_that_the_script_only_prepared_is_no_checkpoint_of_its_training():
    prepared = replace(SAVE, begin=-2.0, end=-1.9)
    skipped("DD405", Source.RUN, resuming("module", saves=(prepared,)))


def test_a_checkpoint_of_weights_alone_is_right():
    load = replace(LOAD, entries=("model", "epoch"), states=())
    skipped("DD405", Source.RUN, resuming("module", load=load))


def test_an_entry_that_only_has_the_name_of_a_state_is_none():
    named = replace(LOAD, entries=("model", "optimizer_name", "scheduler"), states=())
    skipped("DD405", Source.RUN, resuming("module", load=named))


def test_a_state_is_known_by_what_it_holds_whatever_its_entry_is_called():
    called = replace(LOAD, entries=("net", "trainer"), states=("optimizer",))
    finding = only_finding("DD405", Source.RUN, resuming("module", load=called))
    assert finding.headline.endswith("without the optimizer state that it holds")


def test_reading_the_best_weights_after_training_is_right():
    skipped("DD405", Source.RUN, resuming("module", load=replace(LOAD, begin=50.0, end=50.1)))


def test_going_back_to_the_best_weights_in_between_is_right():
    late = replace(LOAD, begin=1.95, end=1.96)

    def between(rank, one):
        return replace(one, state_loads=(replace(one.state_loads[0], time=1.97),))

    skipped("DD405", Source.RUN, resuming("module", load=late, change=between))


WITHOUT_OPTIMIZER = ("model", "epoch")


def going_on(epoch, momentum=0.9, saved=None, entries=WITHOUT_OPTIMIZER, first=1, restored=("module",)):
    """A resume from a checkpoint with this number, passes over two epochs from ``first`` on, and a save."""
    states = tuple({"optimizer"}.intersection(entries))
    load = replace(LOAD, entries=entries, numbers={"epoch": epoch}, states=states)
    numbers = {"epoch": saved} if saved else {}

    def change(rank, one):
        passes = tuple(
            replace(pass_, sampler=replace(pass_.sampler, epoch=number))
            for number, pass_ in enumerate(one.passes, first)
        )
        steps = tuple(
            with_update(step, hyperparameters=({"lr": 0.1, "momentum": momentum},)) for step in one.steps
        )
        save = replace(SAVE, entries=entries, numbers=numbers)
        return replace(one, passes=passes, steps=steps, saves=(save,))

    return resuming(*restored, load=load, change=change)


def test_a_state_that_was_never_saved():
    finding = only_finding("DD405", Source.RUN, going_on(1))
    assert finding.headline == "ranks 0-1 resume from 'last.pt', which lacks the state of SGD"


def test_an_optimizer_without_a_state_needs_none():
    passed("DD405", Source.RUN, going_on(1, momentum=0.0))


def test_epochs_that_do_not_go_on_are_another_training():
    skipped("DD405", Source.RUN, going_on(7))


def test_an_epoch_that_was_done_is_repeated():
    finding = only_finding("DD405", Source.RUN, going_on(1, momentum=0.0, saved=2))
    assert finding.headline == "ranks 0-1 train on epoch 1 again after resuming from 'last.pt'"


FOR = """\
def train(loader):
    for x in loader:
        pass
for n1 in range(3):
    for epoch_of_fold in [7]:
        pass
    train(loader)
"""
WHILE = """\
n1, epoch = 1, 7
while n1 < 3:
    for x in loader:
        pass
    n1 += 1
"""


@pytest.mark.parametrize(("script", "line"), [(FOR, 2), (WHILE, 3)], ids=["for", "while"])
@pytest.mark.parametrize(("own", "saved", "repeats"), [(1, 1, True), (2, 2, False), (1, 2, False)])
def test_an_epoch_that_no_sampler_is_told_is_what_the_loop_around_counts(
    tmp_path: Path, script: str, line: int, own: int, saved: int, repeats: bool
) -> None:
    file = tmp_path / "train.py"
    file.write_text(script)

    def untold(rank, one):
        passes = tuple(
            replace(pass_, sampler=replace(pass_.sampler, epoch=0), at=Where(str(file), line))
            for pass_ in one.passes
        )
        values = {"n1": own, "epoch": 7, "epoch_of_fold": 7, "epochs": 9}
        numbers = LoopNumbers(1, one.steps[0].index, Where(str(file), 5, "<module>"), values)
        save = replace(SAVE, entries=LOAD.entries, numbers={"epoch": saved}, begin=one.passes[0].end + 0.01)
        return replace(one, passes=passes, saves=(save,), record=Record.made(numbers))

    load = replace(LOAD, numbers={"epoch": 1})
    trace = resuming("module", "optimizer", "scheduler", load=load, change=untold)
    judgement = check("DD405").examine_run(trace)
    assert isinstance(judgement, list)
    again = [it.explained_by for it in judgement if isinstance(it, Finding) and "again after" in it.headline]
    assert again == ([()] if repeats else [])


BOTH = {"entries": ("model", "optimizer", "epoch"), "restored": ("module", "optimizer")}


def test_the_first_epoch_is_repeated():
    finding = only_finding("DD405", Source.RUN, going_on(0, saved=1, first=0, **BOTH))
    assert finding.headline == "ranks 0-1 train on epoch 0 again after resuming from 'last.pt'"


def test_the_first_epoch_of_another_training_is_no_repetition():
    skipped("DD405", Source.RUN, going_on(0, momentum=0.0, saved=1, first=0))


def test_a_checkpoint_that_holds_the_next_epoch():
    passed("DD405", Source.RUN, going_on(1, momentum=0.0, saved=3))


def restarted(count, momentum=0.9):
    """torchrun has started the ranks, and they go on from weights alone."""
    weights = {"entries": ("weight", "bias"), "numbers": {}}

    def change(rank, one):
        steps = tuple(
            with_update(own, hyperparameters=({"lr": 0.1, "momentum": momentum},)) for own in one.steps
        )
        return replace(one, steps=steps, environ={"TORCHELASTIC_RESTART_COUNT": str(count)})

    return resuming(
        "module", load=replace(LOAD, states=(), **weights), saves=(replace(SAVE, **weights),), change=change
    )


def test_an_optimizer_that_a_restarted_rank_begins_anew():
    finding = only_finding("DD405", Source.RUN, restarted(1))
    assert finding.headline == ("ranks 0-1 resume from 'last.pt', which lacks the state of SGD")


def test_weights_alone_are_enough_in_the_first_attempt_and_without_a_state():
    skipped("DD405", Source.RUN, restarted(0))
    passed("DD405", Source.RUN, restarted(1, momentum=0.0))


def test_a_new_head_on_a_restored_encoder_is_tuned():
    def tuned(rank, one):
        (encoder,) = one.wrappers
        head = replace(encoder, index=1, id=1, parameters=(replace(encoder.parameters[0], key="1.head"),))
        trained = tuple(replace(optimizer, keys=(*optimizer.keys, "1.head")) for optimizer in one.optimizers)
        loaded = tuple(replace(load, wrapper=0) for load in one.state_loads)
        return replace(one, wrappers=(encoder, head), optimizers=trained, state_loads=loaded)

    skipped("DD405", Source.RUN, resuming("module", change=tuned))


def test_an_optimizer_of_the_restored_module_was_left_behind():
    def restored(rank, one):
        return replace(one, state_loads=tuple(replace(load, wrapper=0) for load in one.state_loads))

    only_finding("DD405", Source.RUN, resuming("module", change=restored))


def test_a_state_that_was_never_saved_beside_a_count_of_steps():
    def change(counted):
        def counting(rank, one):
            at = where(47)
            numbers = [LoopNumbers(1, step, at, {"n": value}) for step, value in enumerate(counted)]
            steps = tuple(with_update(it, hyperparameters=({"betas": (0.9, 0.99)},)) for it in one.steps)
            return replace(one, passes=(), steps=steps, record=Record.made(*numbers))

        return counting

    entries = ("model", "n")
    load = replace(LOAD, entries=entries, numbers={"n": 40}, states=())
    saves = (replace(SAVE, entries=entries),)
    trace = resuming("module", load=load, saves=saves, change=change((40.0, 41.0, 42.0)))
    assert "lacks the state of SGD" in only_finding("DD405", Source.RUN, trace).headline
    for other in ((0.0, 1.0, 2.0), (40.0,), (40.0, 3.0)):
        skipped("DD405", Source.RUN, resuming("module", load=load, saves=saves, change=change(other)))


WEIGHTS, OPTIMIZER, PROGRESS = (f"/jobs/{name}.pt" for name in ("weights", "optimizer", "progress"))


def of_several_files(*loaded, restored=("module",), together=True):
    """A resume from files of which each holds a part; they are saved at once, or with an update between."""
    loads = tuple(
        Load(path, where(60 + n), -1.0 + n / 10, -0.95 + n / 10, id=n, numbers={"n": 9} if n else {})
        for n, path in enumerate(loaded)
    )
    begin = 20.0 if together else 0.5
    saves = (
        Save(WEIGHTS, where(80), 20.0, 20.1, entries=("weight",)),
        Save(
            OPTIMIZER, where(81), begin, begin + 0.1, entries=("state", "param_groups"), states=("optimizer",)
        ),
        Save(PROGRESS, where(82), 20.2, 20.3, entries=("n",), numbers={"n": 20}),
    )
    states = tuple(replace(state(kind), load=0 if kind == "module" else 1) for kind in restored)
    return recorded(change=lambda _, one: replace(one, loads=loads, saves=saves, state_loads=states))


def test_an_optimizer_that_was_left_behind_in_a_file_of_its_own():
    finding = only_finding("DD405", Source.RUN, of_several_files(WEIGHTS, PROGRESS))
    assert finding.headline == (
        "ranks 0-1 resume from 'weights.pt' without the optimizer state that 'optimizer.pt' holds"
    )
    assert finding.where == where(61)
    assert finding.evidence[0].text == "saved together with 'optimizer.pt'; restored: module"


def test_several_files_that_were_all_restored():
    passed("DD405", Source.RUN, of_several_files(WEIGHTS, OPTIMIZER, restored=("optimizer", "module")))


def test_weights_of_a_stage_that_saved_its_optimizer_at_another_time():
    skipped("DD405", Source.RUN, of_several_files(WEIGHTS, PROGRESS, together=False))
