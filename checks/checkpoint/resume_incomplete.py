import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ddpdoctor.check import Check
from ddpdoctor.model import Evidence, Finding, Judgement, Kind, Passed, Skipped, Where
from ddpdoctor.recorder.events.files import Load, Save, StateLoad
from ddpdoctor.text import ranks_do, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.instances import by_key, by_line, files, on_ranks
from ddpdoctor.trace.recording import Recording

NOT_DONE = ("max", "num", "total", "best", "per_")
"""Words by which a checkpoint's epoch is not the one that it was saved in."""
KINDS = {"optimizer": ("optim", "opt_"), "scheduler": ("sched",), "scaler": ("scaler",)}
"""What has a state of its own, and the beginnings of words by which checkpoints call it."""


class ResumeIncomplete(Check):
    """Training resumes from a checkpoint of which only a part was restored.

    What it finds:
        A checkpoint that holds the state of an optimizer, a scheduler or a gradient scaler, from which the model is
        loaded and training goes on, while that state is not, on some rank or on all; and a sampler that shuffles
        and begins again at epoch 0. Told from fine-tuning, which wants the weights alone, by what the script does
        with the file: it saves to the same path, or it restores other parts of it.

    Why it matters:
        Momentum and the averages of Adam begin from nothing and take the first hundred steps in other directions;
        the learning rate begins its warm-up again; the data of the first epochs is seen again in the same order.
        The loss jumps at each resume. Where one rank restores and another does not, replicas drift apart.

    Example:
        state = torch.load("last.pt")
        model.load_state_dict(state["model"])           # state["optimizer"] and state["epoch"] stay behind

    Fix:
        Restore everything that was saved, on every rank:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            scheduler.load_state_dict(state["scheduler"])
            for epoch in range(state["epoch"] + 1, epochs):
                sampler.set_epoch(epoch)
    """

    code = "DD405"
    title = "training that resumes restores what was saved"
    explained_by = ("DD403",)

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training()
        saves = [(recording, save) for recording in recordings.values() for save in recording.saves]
        resumed = {
            rank: resume for rank, recording in recordings.items() if (resume := _resume(recording, saves))
        }
        if not resumed:
            return Skipped("no training goes on from a checkpoint that holds more than weights")
        lacking = ((rank, resume) for rank, resume in resumed.items() if resume.missing)
        again = ((rank, resume) for rank, resume in resumed.items() if resume.again)
        kinds = ", ".join(sorted({load.kind for resume in resumed.values() for load in resume.restored}))
        return [
            *map(self._not_restored, by_line(lacking)),
            *map(self._begins_again, by_key(again, lambda resume: resume.again and resume.again.at)),
        ] or Passed(f"training went on from a checkpoint with {kinds} restored")

    def _not_restored(self, lacking: Mapping[int, "Resume"]) -> Finding:
        resume = next(iter(lacking.values()))
        kinds = " and ".join(resume.missing)
        return self.fail(
            f"{ranks_do(lacking, 'resume')} from {files([resume.load.path])} without the {kinds} state that it holds",
            why=f"The {kinds} {'starts' if len(resume.missing) == 1 else 'start'} over while the weights do not: "
            "momentum and averages are lost, or the learning rate begins its warm-up again. The loss jumps.",
            fix="\n".join(f'{kind}.load_state_dict(state["{kind}"])' for kind in resume.missing),
            **on_ranks(lacking, _restored),
            about=Kind.PATH.of(resume.load.path),
        )

    def _begins_again(self, again: Mapping[int, "Resume"]) -> Finding:
        resume = next(iter(again.values()))
        epoch = _epoch(resume.load)
        return self.fail(
            f"the sampler of {ranks_phrase(again)} begins again at epoch 0 after resuming from epoch {epoch} "
            f"of {files([resume.load.path])}",
            why="The order of the data is drawn from seed + epoch, so the epochs that were trained on before are "
            "repeated in the same order, and the run takes longer than the one that was interrupted.",
            fix='for epoch in range(state["epoch"] + 1, epochs):    # where it holds the last epoch that was done\n'
            "    sampler.set_epoch(epoch)",
            ranks=tuple(again),
            where=resume.again.at if resume.again else None,
            evidence=(
                Evidence(f"epoch {epoch} in the checkpoint, 0 in the first pass after it", tuple(again)),
            ),
            explained_by=("DD103",),
        )


@dataclass(frozen=True)
class Resume:
    """A checkpoint from which one rank goes on."""

    load: Load
    restored: tuple[StateLoad, ...]
    missing: tuple[str, ...]
    """Kinds whose state is in the file and was not restored."""
    again: Pass | None = None
    """The first training pass after it, where that begins the epochs again."""

    @property
    def at(self) -> Where | None:
        """Where the model took its weights."""
        return next((load.at for load in self.restored if load.kind == "module"), self.load.at)


def _resume(recording: Recording, saves: Sequence[tuple[Recording, Save]]) -> Resume | None:
    """The last checkpoint that this rank goes on from; None for weights alone, which is fine-tuning."""
    for load in reversed(recording.loads):
        updates = [update.time for step in recording.steps for update in step.optimizer_steps]
        first = min((time for time in updates if time > load.begin), default=None)
        if first is None or load.error or not load.path:
            continue
        restored = tuple(
            state for state in recording.state_loads if load.begin < state.time < first and not state.error
        )
        if any(state.missing for state in restored):
            continue  # a model with other parts is tuned, not resumed
        kinds = {state.kind for state in restored}
        held = [kind for kind, words in KINDS.items() if kind in load.states or _holds(load, words)]
        new = _stepped_before(recording, math.inf) - _stepped_before(recording, load.begin)
        if (
            "module" in kinds
            and (held or _epoch(load))
            and new
            and (kinds & set(KINDS) or _saves_there(saves, load))
        ):
            missing = tuple(kind for kind in held if kind not in kinds)
            return Resume(load, restored, missing, _again(recording, load))
    return None


def _restored(resume: Resume) -> str:
    kinds = ", ".join(sorted({load.kind for load in resume.restored}))
    return f"holds {', '.join(resume.load.entries)}; restored: {kinds}"


def _holds(load: Load, words: tuple[str, ...]) -> bool:
    entries = [entry.lower() for entry in load.entries]
    return any(entry.startswith(word) or f"_{word}" in entry for entry in entries for word in words)


def _stepped_before(recording: Recording, time: float) -> set[int]:
    updates = (update for step in recording.steps for update in step.optimizer_steps)
    return {update.optimizer for update in updates if update.time < time}


def _saves_there(saves: Sequence[tuple[Recording, Save]], load: Load) -> bool:
    """Whether the script trains into the file that it loads, or into one like it in the same folder."""
    folder, entries = PurePath(load.path).parent, set(load.entries)
    return any(
        save.path == load.path or (PurePath(save.path).parent == folder and set(save.entries) == entries)
        for recording, save in saves
        if save.path and (save.begin > load.begin or _stepped_before(recording, save.begin))
    )


def _again(recording: Recording, load: Load) -> Pass | None:
    """The first training pass after the load, where its sampler is at epoch 0 and the checkpoint was not."""
    first = next((pass_ for pass_ in recording.training_passes if pass_.begin > load.begin), None)
    if first is None or first.sampler is None or not _epoch(load):
        return None
    return first if first.sampler.shuffle and first.sampler.epoch == 0 else None


def _epoch(load: Load) -> int:
    """The epoch in which a checkpoint was saved, as far as it tells; 0 where it does not."""
    epochs = (
        value
        for name, value in load.numbers.items()
        if "epoch" in name.lower() and not any(word in name.lower() for word in NOT_DONE)
    )
    return int(max(epochs, default=0))
