import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePath

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Kind, Passed, Where
from ddpdoctor.recorder.events.files import Load, Save, StateLoad
from ddpdoctor.recorder.events.updates import SchedulerStep
from ddpdoctor.recorder.loop_numbers import LoopNumbers
from ddpdoctor.text import ranks_do, ranks_phrase
from ddpdoctor.trace import Recording, Trace, by_key, by_line, on_each_rank, on_ranks
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.instances import files
from ddpdoctor.trace.lines import program_of
from ddpdoctor.unreached.state import left_out

KINDS = ("optimizer", "scheduler", "scaler")
"""What has a state of its own."""


class ResumeIncomplete(Check):
    """Training resumes from a checkpoint of which only a part was restored.

    What it finds:
        A checkpoint that holds the state of an optimizer, a scheduler or a gradient scaler, from which the model is
        loaded and training goes on, while that state is not, on some rank or on all; a checkpoint in which the state
        of an optimizer with momentum or averages was never saved, or that of a scheduler, which begins again, beside
        an optimizer that is restored; a state in a file that the script saves together with the one that was loaded;
        a sampler that shuffles and begins again at epoch 0; and an epoch that is trained on again though it was done
        when the checkpoint was saved. It is told from fine-tuning, which wants the weights alone, by what the script
        does with the file: it saves to the same path, or it restores other parts of it. After torchrun has restarted
        the ranks, a file of weights alone that the script saves to is such a checkpoint, too.

    Why it matters:
        Momentum and the averages of Adam begin from nothing and take the first hundred steps in other directions; the
        learning rate begins its warm-up again; the data of the first epochs is seen again in the same order. The loss
        jumps at each resume. A number of the epoch that was done, taken for the next, repeats that epoch. Where one
        rank restores and another does not, replicas drift apart.

    Example:
        state = torch.load("last.pt")
        model.load_state_dict(state["model"])           # state["optimizer"] and state["epoch"] stay behind

    Fix:
        Save the state of everything that has one, and restore it on every rank:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            scheduler.load_state_dict(state["scheduler"])
            for epoch in range(state["epoch"] + 1, epochs):
                sampler.set_epoch(epoch)
    """

    code = "DD405"
    title = "training that resumes restores what was saved"
    explained_by = ("DD403",)
    unreached = (left_out, "the resume reads the checkpoint, but not its {key}")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training()
        saves = [(recording, save) for recording in recordings.values() for save in recording.saves]
        resumed = on_each_rank(recordings, lambda recording: _resume(recording, saves))
        self.require(resumed, "no training goes on from a checkpoint that holds more than weights")
        lacking = by_key((it for it in resumed if it[1].missing), lambda resume: (resume.at, resume.missing))
        unsaved = by_line(it for it in resumed if it[1].unsaved)
        again = by_key((it for it in resumed if it[1].again), lambda resume: resume.first_line)
        repeated = by_key((it for it in resumed if it[1].repeated), lambda resume: resume.first_line)
        kinds = ", ".join(sorted({load.kind for _, resume in resumed for load in resume.restored}))
        return [
            *(self._not_restored(of_line, _elsewhere(of_line, resumed)) for of_line in lacking),
            *map(self._never_saved, unsaved),
            *(self._goes_back(of_line, again=True) for of_line in again),
            *(self._goes_back(of_line, again=False) for of_line in repeated),
        ] or Passed(f"training went on from a checkpoint with {kinds} restored")

    def _not_restored(self, lacking: Mapping[int, "Resume"], elsewhere: StateLoad | None) -> Finding:
        """Where other ranks restore it, that is the line to change."""
        resume = next(iter(lacking.values()))
        kinds = " and ".join(resume.missing)
        holder = files(resume.beside) if resume.beside else "it"
        return self.fail(
            f"{ranks_do(lacking, 'resume')} from {files([resume.load.path])} without the {kinds} state that {holder} "
            f"{'hold' if len(resume.beside) > 1 else 'holds'}",
            **{**on_ranks(lacking, _restored), **({"where": elsewhere.at} if elsewhere else {})},
            about=Kind.PATH.of(resume.load.path),
        )

    def _goes_back(self, resumed: Mapping[int, "Resume"], *, again: bool) -> Finding:
        resume = next(iter(resumed.values()))
        epoch, ranks = resume.epoch, ranks_phrase(resumed)
        what = f"{ranks} train on epoch {epoch} again after resuming from"
        if again:
            what = f"the sampler of {ranks} begins again at epoch 0 after resuming from epoch {epoch} of"
        shown = f"epoch {epoch} in the checkpoint, {'0' if again else 'and'} in the first pass after it"
        return self.fail(
            f"{what} {files([resume.load.path])}",
            where=resume.first_line,
            evidence=(Evidence(shown, tuple(resumed)),),
            explained_by=("DD103",) if again or resume.samplers_are_told else (),
        )

    def _never_saved(self, lacking: Mapping[int, "Resume"]) -> Finding:
        resume = next(iter(lacking.values()))
        return self.fail(
            f"{ranks_do(lacking, 'resume')} from {files([resume.load.path])}, which lacks the state "
            f"of {resume.unsaved}",
            **on_ranks(lacking, _restored),
            about=Kind.PATH.of(resume.load.path),
        )


@dataclass(frozen=True)
class Resume:
    """A checkpoint from which one rank goes on."""

    load: Load
    restored: tuple[StateLoad, ...]
    missing: tuple[str, ...]
    """Kinds whose state is in the file and was not restored."""
    first: Pass | None = None
    """The first training pass after it."""
    again: bool = False
    """Whether that begins the epochs again."""
    unsaved: str | None = None
    """The class of an optimizer, or of a scheduler, with a state that is neither in the file nor restored."""
    repeated: bool = False
    """Whether the first pass has the epoch again that was done before it was saved."""
    beside: tuple[str, ...] = ()
    """The other files that hold the missing states, where the script saves several at once."""
    epoch: int = 0
    """Of the checkpoint, as far as its numbers tell."""
    samplers_are_told: bool = True
    """Whether samplers tell which epoch a pass has, and not the script's own variable."""

    @property
    def at(self) -> Where | None:
        """Where the model took its weights."""
        return next((load.at for load in self.restored if load.kind == "module"), self.load.at)

    told_at: Where | None = None
    """The line that alone tells samplers their epoch, where that is counted anew while the checkpoint's goes on."""

    @property
    def first_line(self) -> Where | None:
        """Where the first pass got its epoch, or was made."""
        return self.told_at or (self.first.at if self.first else None)


def _resume(recording: Recording, saves: Sequence[tuple[Recording, Save]]) -> Iterator[Resume]:
    """The last checkpoint that this rank goes on from; none for weights alone, which is fine-tuning."""
    updates = [update.time for update in recording.updates]
    for file in reversed(recording.loads):
        first = min((time for time in updates if time > file.begin), default=None)
        if first is None or file.error or not file.path:
            continue
        since = max((time for time in updates if time < file.begin), default=-math.inf)
        beside = _saved_beside(recording, file, saves, since, first)
        together = [file, *(it for it in recording.loads if it.path in beside and since < it.begin < first)]
        load = replace(file, numbers={name: number for it in together for name, number in it.numbers.items()})
        begin = since if beside else load.begin
        restored = [it for it in recording.state_loads if begin < it.time < first and not it.error]
        if any(state.missing for state in restored):
            continue  # a model with other parts is tuned, not resumed
        kinds = {state.kind for state in restored}
        sources = {state.load for state in restored if state.kind == "module"}
        if beside and sources != {None} and load.id not in sources:
            continue
        held = [kind for kind in KINDS if kind in load.states or kind in beside.values()]
        new = _stepped_before(recording, math.inf) - _stepped_before(recording, load.begin)
        goes_on, follow = _first_pass(recording, load), _following_epochs(load, saves)
        epoch = int(min((load.numbers[name] for name in follow), default=0))
        next_epoch = _is_next(load, goes_on)
        restarted = recording.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        counts_on = next_epoch or restarted or _counts_on(recording, load, first)
        if (
            "module" not in kinds
            or not new
            or _has_other_parts(recording, restored, new)
            or not (held or epoch or counts_on)
            or not (kinds & set(KINDS) or _saves_there(saves, load))
        ):
            continue
        missing = tuple(kind for kind in held if kind not in kinds)
        is_whole = "optimizer" in {*held, *kinds}
        unsaved = _unsaved(recording, new) if counts_on and not is_whole else None
        has_schedule = unsaved or "scheduler" in {*held, *kinds}
        begun = None if has_schedule else _begun_again(recording, kinds, first)
        yield Resume(
            load,
            tuple(restored),
            missing,
            goes_on,
            again=bool(epoch) and _is_at_epoch_0(goes_on),
            unsaved=unsaved or begun,
            repeated=_is_repeated(recording, load, goes_on, saves, follow, kinds),
            beside=tuple(path for path, kind in beside.items() if kind in missing),
            epoch=epoch,
            told_at=_told_at(recording, load, saves, follow),
            samplers_are_told=_samplers_are_told(recording),
        )
        return


def _is_next(load: Load, first: Pass | None) -> bool:
    """Whether the first pass after a load has the epoch of one of its numbers, or the one behind."""
    epoch = first.sampler.epoch if first and first.sampler else None
    return bool(epoch) and any(it > 0 and epoch in (it, it + 1) for it in load.numbers.values())


def _following_epochs(load: Load, saves: Sequence[tuple[Recording, Save]]) -> list[str]:
    """The numbers of a checkpoint that are its epoch, or the next: in each save like it in a known epoch, which after
    the load may be counted anew while the number goes on."""
    alike = [(writer, save) for writer, save in saves if set(save.entries) == set(load.entries)]
    known = [
        (save, epoch)
        for writer, save in alike
        if (epoch := _epoch_of(writer, _pass_before(writer, save))) is not None
    ]

    def follows(name: str, save: Save, epoch: float) -> bool:
        begun = load.numbers[name] if save.begin > load.begin else 0
        return save.numbers.get(name, math.nan) - epoch in (0, 1, begun, begun + 1)

    return [name for name in load.numbers if known and all(follows(name, *it) for it in known)]


def _told_at(
    recording: Recording, load: Load, saves: Sequence[tuple[Recording, Save]], names: Sequence[str]
) -> Where | None:
    """The one line that tells samplers their epoch, where a number that goes on from the checkpoint's tells another."""
    goes_on = _first_pass(recording, load)
    later = [save for _, save in saves if save.begin > load.begin and set(save.entries) == set(load.entries)]
    numbers = ((save.numbers[name], load.numbers[name]) for save in later for name in names)
    if not (_is_at_epoch_0(goes_on) and goes_on and goes_on.at and any(now > then for now, then in numbers)):
        return None
    calls = [it for it in program_of(goes_on.at, {0: recording}).every_call() if it.method == "set_epoch"]
    return calls[0].where if len(calls) == 1 else None


def _pass_before(writer: Recording, save: Save) -> Pass | None:
    """The training pass in or behind which a checkpoint was saved."""
    return next((it for it in reversed(writer.training_passes) if it.begin < save.begin), None)


def _has_other_parts(recording: Recording, restored: Sequence[StateLoad], new: set[int]) -> bool:
    """Whether each new optimizer trains wrapped parts that were not restored: a head on a pretrained encoder."""
    wrappers = {state.wrapper for state in restored if state.kind == "module"}
    if None in wrappers:
        return False  # restored before the wrap, into whatever is wrapped then
    held = recording.wrapper_of_parameter
    parts = [{held[key] for key in it.keys if key in held} for it in recording.optimizers if it.index in new]
    return bool(parts) and all(of_optimizer - wrappers for of_optimizer in parts)


def _saved_beside(
    recording: Recording, load: Load, saves: Sequence[tuple[Recording, Save]], since: float, first: float
) -> dict[str, str]:
    """The other files that the script saves together with the one that was loaded, and the kind of state in each, or
    none; where one of them was loaded as well, or the epochs go on: weights alone may be those of another training."""
    writer, saved = next((it for it in reversed(saves) if it[1].path == load.path), (None, None))
    if writer is None or saved is None:
        return {}
    updates = [update.time for update in writer.updates]
    begin = max((time for time in updates if time < saved.begin), default=-math.inf)
    end = min((time for time in updates if time > saved.begin), default=math.inf)
    beside = {
        save.path: next(iter(save.states), "")
        for save in writer.saves
        if begin < save.begin < end and save.path and save.path != load.path
    }
    goes_on = _first_pass(recording, load)
    told = goes_on and goes_on.sampler and goes_on.sampler.epoch
    loaded = any(since < it.begin < first and it.path in beside and not it.error for it in recording.loads)
    return beside if told or loaded else {}


def _counts_on(recording: Recording, load: Load, first: float) -> bool:
    """Whether a number of the script goes on counting from one of the checkpoint's, where training goes on."""
    wrappers = sum(wrapper.time < first for wrapper in recording.wrappers)
    counts: dict[tuple[str | None, str], list[float]] = {}
    for event in recording.events(LoopNumbers):
        if event.wrappers == wrappers and event.at is not None:
            for name, value in event.values.items():
                row = counts.setdefault((event.at.function, name), [])
                row.append(math.nan if value is None else value)
    begun = {row[0] for row in counts.values() if len(row) > 1 and all(a < b for a, b in pairwise(row))}
    return any(number > 1 and not begun.isdisjoint((number, number + 1)) for number in load.numbers.values())


def _restored(resume: Resume) -> str:
    kinds = ", ".join(sorted({load.kind for load in resume.restored}))
    if resume.beside:
        return f"saved together with {files(resume.beside)}; restored: {kinds}"
    return f"holds {', '.join(resume.load.entries)}; restored: {kinds}"


def _elsewhere(lacking: Mapping[int, Resume], resumed: Sequence[tuple[int, Resume]]) -> StateLoad | None:
    """Where other ranks restore what these leave behind."""
    missing = {kind for resume in lacking.values() for kind in resume.missing}
    others = (resume for rank, resume in resumed if rank not in lacking)
    return next((state for other in others for state in other.restored if state.kind in missing), None)


def _stepped_before(recording: Recording, time: float) -> set[int]:
    return {update.optimizer for update in recording.updates if update.time < time}


def _saves_there(saves: Sequence[tuple[Recording, Save]], load: Load) -> bool:
    """Whether the script trains into the file that it loads, or into one like it in the same folder."""
    folder, entries = PurePath(load.path).parent, set(load.entries)
    return any(
        save.path == load.path or (PurePath(save.path).parent == folder and set(save.entries) == entries)
        for recording, save in saves
        if save.path and (save.begin > load.begin or _stepped_before(recording, save.begin))
    )


def _first_pass(recording: Recording, load: Load) -> Pass | None:
    """The first training pass after a load."""
    return next((pass_ for pass_ in recording.training_passes if pass_.begin > load.begin), None)


def _is_at_epoch_0(first: Pass | None) -> bool:
    """Whether the sampler of the first training pass after the load is at epoch 0."""
    sampler = first.sampler if first is not None else None
    return sampler is not None and bool(sampler.shuffle) and sampler.epoch == 0


def _unsaved(recording: Recording, new: set[int]) -> str | None:
    """The class of a new optimizer that keeps a state."""
    stateful = {
        update.optimizer
        for update in recording.updates
        if any(group.get("betas") or group.get("momentum") for group in update.hyperparameters)
    }
    return next((held.name for held in recording.optimizers if held.index in new & stateful), None)


def _begun_again(recording: Recording, restored: Collection[str], first: float) -> str | None:
    """The class of a scheduler that is at its first step after the first update beside a restored optimizer.

    One that was told where to go on, or was stepped up to there, is at a later one. ReduceLROnPlateau has no schedule.
    """
    steps = recording.events(SchedulerStep)
    before = {step.scheduler for step in steps if step.time < first}
    later = next((step for step in steps if step.time > first and step.scheduler not in before), None)
    begun = later is not None and later.epoch == 1 and later.metric is None and "optimizer" in restored
    return later.name if later and begun else None


def _is_repeated(
    recording: Recording,
    load: Load,
    first: Pass | None,
    saves: Sequence[tuple[Recording, Save]],
    follow: Sequence[str],
    restored: Collection[str],
) -> bool:
    """Whether saves of this script show that the epoch of the first training pass after the load was done before."""
    epoch = _epoch_of(recording, first) if first and first.sampler else None
    # Epoch 0 is also that of another training.
    if epoch is None or not (epoch or "optimizer" in restored):
        return False
    names = [name for name in follow if load.numbers[name] == epoch]
    alike = ((writer, save) for writer, save in saves if set(save.entries) == set(load.entries))
    return any(_saved_when_done(writer, save, names) for writer, save in alike)


def _saved_when_done(writer: Recording, save: Save, names: Sequence[str]) -> bool:
    """Whether a save holds, as one of these numbers, that of the epoch that had ended before it."""
    last = _pass_before(writer, save)
    if last is None or last.end is None or last.end > save.begin:
        return False
    epoch = _epoch_of(writer, last)
    return epoch is not None and epoch in [save.numbers.get(name) for name in names]


def _samplers_are_told(recording: Recording) -> bool:
    """Whether samplers are told the epoch: at 0 is also one that never is."""
    return any(pass_.sampler and pass_.sampler.epoch for pass_ in recording.training_passes)


def _epoch_of(recording: Recording, pass_: Pass | None) -> float | None:
    """The epoch of a training pass: what its sampler was told, and otherwise what the loop around it counts, of the
    first pass alone. None where that is not known."""
    if pass_ is None:
        return None
    if _samplers_are_told(recording):
        return pass_.sampler.epoch if pass_.sampler else None
    if pass_.begin > recording.training_passes[0].begin or not recording.steps:
        return None
    begun, at = recording.steps[0].index, pass_.at
    counted = program_of(at, {0: recording}).counted_around(at) if at else frozenset()
    values = {
        value
        for event in recording.events(LoopNumbers)
        if event.step == begun
        for name, value in event.values.items()
        if event.at is not None and (event.at.function, name) in counted
    }
    return values.pop() if len(values) == 1 else None
