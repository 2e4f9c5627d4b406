"""The trace of a training run, as ``examine_run`` gets it: what each rank left behind. Plain data, no torch."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from ddpdoctor.blame.frames import Failure, Frame
from ddpdoctor.blame.hang_snapshot import HangSnapshot
from ddpdoctor.check import NotMeasured
from ddpdoctor.frameworks import Framework, framework_of
from ddpdoctor.launch import Imagined
from ddpdoctor.recorder.launchers import by_name
from ddpdoctor.text import shorten
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.instances import (
    by_first_line,
    by_key,
    by_line,
    by_value,
    grouped,
    in_turn,
    made_at,
    of_loader,
    of_model,
    on_each_rank,
    on_ranks,
    shown_at,
)
from ddpdoctor.trace.joint_training import without_own_training
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.written import WouldWrite

__all__ = (
    "LostHost", "RankTrace", "Recording", "Shortened", "Trace", "TrainingStep", "by_first_line",
    "by_key", "by_line", "by_value", "grouped", "in_turn", "made_at", "of_loader", "of_model",
    "on_each_rank", "on_ranks", "several", "shown_at",
)  # fmt: skip

_Answer = TypeVar("_Answer")

_GLOO_ENDS = "instance of 'gloo::"
"""In the last words of a process that gloo ended, mostly because a peer sent more than its collective takes."""


@dataclass(frozen=True)
class RankTrace:
    """One rank of the run."""

    rank: int
    finished: bool = False
    """Whether it reached the end of its script; what happens to the process after that is no finding."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """What the script says of itself, for instance losses; empty before it finished."""
    failure: Failure | None = None
    exit_code: int | None = None
    """As the launcher saw it, negative for a signal; None where the launcher did not tell."""
    output: tuple[str, ...] = ()
    """The last lines it wrote."""
    stack: tuple[Frame, ...] = ()
    """Outermost first; taken where the run did not end in time."""
    recording: Recording | None = None
    """What the recorder saw of it; None where it did not come to run, or ran without the recorder."""
    lost_at_end: bool = False
    """Whether it lost a peer in the last collective, which the peer had finished; it counts as finished then."""

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it before its script did; None where none did, or it failed by itself."""
        if self.finished or self.failure or self.exit_code is None or self.exit_code >= 0:
            return None
        return -self.exit_code

    @property
    def is_victim(self) -> bool:
        """Whether it broke by what its peers did: they were gone, did not come, or called another collective."""
        if self.failure is not None:
            return self.failure.of_a_victim
        return self.killed_by == signal.SIGABRT and any(_GLOO_ENDS in line for line in self.output)

    @property
    def did_not_meet(self) -> bool:
        """Whether it failed while it joined a process group: in the store, or on the way to a peer."""
        joinings = self.recording.joinings[-1:] if self.recording else ()
        at_closed_address = self.failure is not None and self.failure.at_closed_address
        return at_closed_address or any(event.action == "refused" for event in joinings)

    @property
    def fault_of_rehearsal(self) -> str | None:
        """What the rehearsal could not do, in a clause, where that ended this rank."""
        raised = self.recording.raised if self.recording is not None else None
        if raised is None or not raised.of_rehearsal:
            return None
        line = f" at {raised.at.file}:{raised.at.line}" if raised.at is not None else ""
        message = shorten(next(iter(raised.message.splitlines()), ""))
        return f"the rehearsal cannot do what the script asks for{line} ({raised.type}: {message})"

    @property
    def broke(self) -> bool:
        """Whether it ended before its script did."""
        return not self.finished and (self.failure is not None or bool(self.exit_code))


@dataclass(frozen=True)
class Shortened:
    """What fast-forward left out."""

    batches: int
    """The most batches that a pass over a DataLoader was given."""
    passes: int
    """Passes that were cut short."""
    steps: int | None = None
    """Training steps after which the script was ended; None where it came to its own end."""
    fewest: int | None = None
    """The fewest batches that such a pass was given; None where all were given as many."""
    whole: int = 0
    """Passes that came to their own end."""


_SLURM = by_name("Slurm")
_BY_SLURM = re.compile(rf"(?P<memory>{_SLURM.over_memory}|{_SLURM.task_out_of_memory})|{_SLURM.over_time}")


@dataclass(frozen=True)
class LostHost:
    """A host of the job that was gone before the end."""

    host: str
    ranks: tuple[int, ...]
    reason: str
    """In a clause whose subject is the host."""


@dataclass(frozen=True)
class Trace:
    """A training run: on this host, or on all of its hosts."""

    ranks: tuple[RankTrace, ...]
    status: int = 0
    """The launcher's exit status; negative for a signal."""
    seconds: float = 0.0
    timed_out: bool = False
    """Whether it was stopped because it did not end in time; ``seconds`` is then what it was given."""
    out_of_time: bool = False
    """Whether that was the time limit of the whole check, which is nobody's fault here."""
    log: tuple[str, ...] = ()
    """The last lines that the launcher wrote."""
    left_behind: tuple[str, ...] = ()
    """Command lines of processes that outlived the launcher."""
    bundled: bool = False
    """Whether this is the trainer that comes with ddpdoctor; its summaries are known."""
    world_size: int | None = None
    """Of the whole job; None where no rank told it."""
    shortened: Shortened | None = None
    """How the run was cut short; None where it ran at full length."""
    rehearsal: bool = False
    """Whether devices were simulated."""
    imagined: Imagined | None = None
    """The job that the script was shown, where only some of its ranks were processes."""
    others: tuple[Recording, ...] = ()
    """Recorded processes that never joined a process group: a launcher, a script that does not train distributed."""
    snapshot: HangSnapshot | None = None
    """The job as it stood when it had stopped; None where it did not."""
    lost: tuple[LostHost, ...] = ()
    """The hosts that were gone before the end; what their ranks did in the last attempt, if any, is not known."""
    oom_kills: int = 0
    """Processes in the control groups of the job that the kernel killed because there was no memory left."""
    written: WouldWrite | None = None
    """What the run would have written; None where its files were its own matter."""
    before: tuple[Trace, ...] = ()
    """The jobs that the launch line ran before this one, in their order."""

    @property
    def ended_by_slurm(self) -> re.Match[str] | None:
        """Where the last lines of the launcher say that Slurm ended the job: for its ``memory``, or another reason."""
        said = filter(None, map(_BY_SLURM.search, self.log))
        return next(said, None) if self.broken else None

    @property
    def broken(self) -> str | None:
        """Why the run did not get to its end, in a clause; None where every rank did."""
        if lost := next((host for host in self.lost if host not in self.restarted_without), None):
            return f"{lost.host} was lost"
        if all(rank.finished for rank in self.ranks):
            return None
        if self.out_of_time:
            return "the time limit was reached"
        if self.timed_out:
            return f"the training run did not end within {self.seconds:.0f} s"
        first = self.first_to_break()
        if first is None:
            return f"the launcher ended with status {self.status} before any rank failed"
        fault = first.fault_of_rehearsal
        return fault or f"rank {first.rank} of the training run broke"

    @property
    def restarts(self) -> int:
        """How often the launcher started the ranks anew."""
        counts = (own.environ.get("TORCHELASTIC_RESTART_COUNT", "0") for own in self.recorded.values())
        return max(map(int, counts), default=0)

    @property
    def restarted_without(self) -> tuple[LostHost, ...]:
        """The lost hosts that torchrun has started the job anew without: all ranks are recorded, and none is theirs."""
        if self.world_size is None or not self.recorded.keys() >= {*range(self.world_size)}:
            return ()
        present = {recording.host for recording in self.recorded.values()}
        return tuple(host for host in self.lost if host.host not in present)

    def require_end(self) -> None:
        """For a check that has nothing to say of a run that broke: NotMeasured, with why it did not get to its end."""
        if self.broken:
            raise NotMeasured(self.broken)

    @property
    def framework(self) -> Framework | None:
        """The framework that wrapped the model; None where the script did so itself."""
        recordings = (rank.recording for rank in self.ranks if rank.recording)
        wrapped = (wrapper.library for recording in recordings for wrapper in recording.wrappers)
        return next(filter(None, map(framework_of, wrapped)), None)

    @property
    def recorded(self) -> dict[int, Recording]:
        """What the recorder saw, by rank; empty where it saw nothing."""
        return {rank.rank: rank.recording for rank in self.ranks if rank.recording is not None}

    def recordings(self) -> dict[int, Recording]:
        """What the recorder saw, by rank; NotMeasured where it saw no process group."""
        recordings = self.recorded
        if not any(recording.groups for recording in recordings.values()):
            raise NotMeasured("the script initialized no process group")
        return recordings

    def recordings_of_several(self) -> dict[int, Recording]:
        """:meth:`recordings` of several ranks, for comparisons; NotMeasured of no process group, or one rank."""
        return several(self.recordings())

    def wrapped(self) -> dict[int, Recording]:
        """The recordings of the ranks that wrapped a module in DistributedDataParallel; NotMeasured where none did."""
        wrapped = {rank: recording for rank, recording in self.recordings().items() if recording.wrappers}
        if not wrapped:
            raise NotMeasured("nothing was wrapped in DistributedDataParallel")
        return wrapped

    def training(self) -> dict[int, Recording]:
        """The recordings of ranks that trained; NotMeasured where none took a step of an optimizer."""
        trained = {rank: recording for rank, recording in self._together.items() if recording.all_steps}
        if not any(recording.steps for recording in trained.values()):
            raise NotMeasured("no optimizer took a step")
        return trained

    @cached_property
    def _together(self) -> dict[int, Recording]:
        """The recordings without what ranks trained by themselves; most checks of a run ask for them."""
        return without_own_training(self.recordings())

    def once(self, question: Callable[[Trace], _Answer]) -> _Answer:
        """What a function says of this run, which is computed the first time: several checks ask the same."""
        answers = self.__dict__.setdefault("_answers", {})
        if question not in answers:
            answers[question] = question(self)
        answer: _Answer = answers[question]
        return answer

    def training_of_several(self) -> dict[int, Recording]:
        """:meth:`training` of several ranks, for comparisons; NotMeasured of no training, or one rank alone."""
        return several(self.training())

    def first_to_break(self) -> RankTrace | None:
        """The rank that broke before the others.

        Who says no more than that a peer is gone is the victim of one that was killed without a word, and
        among those who failed by themselves the clock tells.
        """
        # Who gave up at a timeout has not seen its peer go away: that was ended after it.
        ended_later = any(rank.finished or (rank.failure and rank.failure.timed_out) for rank in self.ranks)
        broke = (rank for rank in self.ranks if rank.broke)
        return min(broke, key=lambda rank: _order_of_blame(rank, ended_later), default=None)

    def overdue(self) -> tuple[list[RankTrace], list[RankTrace]]:
        """The ranks that the launcher ended at work, and those that had given up waiting for them; or none."""
        given_up = [rank for rank in self.ranks if rank.failure and rank.failure.timed_out]
        ended = [rank for rank in self.ranks if rank.killed_by == signal.SIGTERM]
        complete = len(given_up) + len(ended) == len(self.ranks) and not self.timed_out
        return (ended, given_up) if complete and given_up else ([], [])

    def values(self, name: str) -> dict[int, Any]:
        """A value of every rank's summary; NotMeasured where a rank did not finish, or the script tells none."""
        self.require_end()
        if not all(name in rank.summary for rank in self.ranks):
            raise NotMeasured(f"the script does not report its {name.replace('_', ' ')}")
        return {rank.rank: rank.summary[name] for rank in self.ranks}


def several(recordings: dict[int, Recording]) -> dict[int, Recording]:
    """The same recordings; NotMeasured where they are of one rank alone."""
    if len(recordings) < 2:
        raise NotMeasured("needs at least two ranks")
    return recordings


def _order_of_blame(rank: RankTrace, ended_later: bool) -> tuple[bool, float, int]:
    if rank.failure is None:
        # A launcher's SIGTERM ends the others when one has broken; any other signal came before them all.
        terminated = rank.exit_code == -signal.SIGTERM
        # Victims of a rank that had left break before the launcher ends who still waits; else somebody sent it.
        return terminated, math.inf if terminated and ended_later else 0.0, rank.rank
    return rank.failure.of_a_victim, rank.failure.time, rank.rank
