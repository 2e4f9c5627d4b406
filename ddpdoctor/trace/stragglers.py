"""Where the time of training steps goes, and ranks that work longer than the others: how much, and at which line.

Ranks are compared step by step, in their own work alone: a rank that waits for others, or for a CPU, is not slow.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from statistics import NormalDist, fmean, median, median_low, stdev

from ddpdoctor.blame.frames import from_here
from ddpdoctor.check import NotMeasured
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import LineTimes
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.joint_training import training_steps
from ddpdoctor.trace.recording import Recording

WARM_UP = 2
"""Training steps at the beginning of a run that say nothing of the pace."""
FEWEST_STEPS = 5
"""Steps from which a median means something."""
WORK = ("data", "forward", "backward", "step", "collective", "other")
"""Phases of a rank's own work; its waits for others, and for a CPU, are phases of their own."""
Steps = Mapping[int, list[TrainingStep]]


def paced_steps(trace: Trace) -> dict[int, list[TrainingStep]]:
    """The training steps of each rank that show its pace: the same on every rank, none that began a pass or set up a
    wrapper, whose constructor waits for the other ranks.

    A rank that makes more micro-batches of a step is given more to do by the script: it is not slow.

    Raises:
        NotMeasured: there are too few, or the devices were simulated.
    """
    if trace.rehearsal:
        raise NotMeasured("a rehearsal shows nothing of speed")
    recordings = trace.training()
    timed = {
        rank: replace(
            recording, steps=tuple(step for step in recording.steps[WARM_UP:] if step.phases.get("total"))
        )
        for rank, recording in recordings.items()
    }
    begun = {
        rank: {
            *(pass_.begin for pass_ in recording.training_passes),
            *(wrapper.time for wrapper in recording.wrappers),
        }
        for rank, recording in recordings.items()
    }
    common = [
        row
        for _, row in training_steps(timed)
        if not any(_begins(step, begun[rank]) for rank, step in row.items())
        and len({len(step.backwards) for step in row.values()}) == 1
    ]
    if len(common) < FEWEST_STEPS:
        raise NotMeasured("too few training steps were timed")
    return {rank: [row[rank] for row in common] for rank in timed}


def _begins(step: TrainingStep, begun: set[float]) -> bool:
    """Whether one of these began in this step: it waited for workers to start, or for all ranks to wrap."""
    end = step.optimizer_steps[0].time  # to which its total is counted, from the update before
    return any(end - step.phases["total"] <= time <= end for time in begun)


def own_time(step: TrainingStep, phase: str) -> float:
    """Seconds of a phase; ``other`` is what is in no phase: the script's own code between them."""
    return _seconds_of(step.phases, phase)


def _seconds_of(phases: Mapping[str, float], phase: str) -> float:
    if phase != "other":
        return phases.get(phase, 0.0)
    known = sum(seconds for name, seconds in phases.items() if name != "total")
    return max(0.0, phases["total"] - known)


def work(phases: Mapping[str, float]) -> dict[str, float]:
    """Seconds of the rank's own work in a step, by phase."""
    return {phase: _seconds_of(phases, phase) for phase in WORK}


def typical(steps: list[TrainingStep], phase: str) -> float:
    """The median of a phase, in seconds; ``total`` for whole steps."""
    return median(own_time(step, phase) for step in steps)


LEAST_SECONDS = 0.004
"""Of a step, below which ranks differ by chance."""
LEAST_SHARE = 0.02
"""Of a step, from which a loss in the script's own code or in its data matters: that much of each GPU is lost."""
LEAST_SHARE_COMPUTED = 0.1
"""The same in forward, backward and optimizer, where devices, too, differ a little."""
LEAST_SHARE_OF_FEW = 0.03
"""Of all steps together, where only some of them are slow."""
FEWEST_PAIRS = 4
FEWEST_SLOW = 3
"""Steps that are slow, where not all are."""
_OUTLIERS = 20
"""One step in so many is left out at either end: a single long step makes no slow rank."""
_CONFIDENCE = 0.99
_OF_QUEUE = 0.15
"""Of the time without a CPU: a rank that had to leave it often works slower, too, since its caches are cold."""
_FEWEST_PHASES = 4
"""From which a rank that is slower in all of them has a slower CPU: in fewer, its samples may be longer."""
_MEASURABLE = 5e-5
"""Seconds of a phase in a step."""
_LEAST_OF_LINE = 0.4
"""Of what a rank loses, that a line has to explain."""
_TIMES_LONGER = 4
"""At a line in a slow step, against what the rank is there in others: a line that varies is the machine's matter."""
_CODE = ("data", "other", "collective")
MODEL = "model"
"""Forward and backward together, in the place of a phase."""
_OF_BACKWARD = 0.2
"""Of what a rank loses in its backward, from which a loss in its forward says that both have more to do: the backward
goes over what the forward computed, and takes about twice as long."""


@dataclass(frozen=True)
class Loss:
    """What a rank works longer than the others."""

    rank: int
    others: tuple[int, ...]
    seconds: float
    """The mean of a step, of those that were compared."""
    interval: tuple[float, float]
    """That holds the mean with 99 % confidence; where only some steps are slow, the least and the most of a step."""
    phase: str
    """The one that it loses most in; ``MODEL`` where that is the backward because the forward computes more."""
    in_all: bool
    """Whether the seconds are those of all phases together."""
    steps: tuple[int, ...]
    """Those that were compared, by their positions."""
    line: Where | None
    """Where the rank spends it; None where no line takes much of it."""
    of: int
    """How many steps there were, where only some are slow; else the number of those that were compared."""


class Pairs:
    """The own work of ranks, step by step."""

    def __init__(self, steps: Steps, recordings: Mapping[int, Recording]) -> None:
        self.steps = steps
        self.work = {rank: [work(step.phases) for step in of] for rank, of in steps.items()}
        self._recordings = recordings
        self._times_by_step: dict[int, Mapping[int, Counter[Where]]] = {}
        seconds = {rank: self._seconds(rank, WORK) for rank in steps}
        means = {rank: fmean([of[i] for i in _inner_positions(of)] or of) for rank, of in seconds.items()}
        least = median_low(means.values())
        self.usual = tuple(rank for rank, mean in means.items() if mean < least + LEAST_SECONDS)
        """The ranks that are not slow in most steps."""
        self._usual = frozenset(self.usual)
        self._delays: dict[int, float] = {}
        self._apart: dict[int, bool] = {}
        self._of_usual: dict[tuple[str, ...], list[float]] = {}

    def losses(self) -> list[Loss]:
        """The ranks that are slow in most steps, and else those that are in some."""
        slow = [rank for rank in self.steps if rank not in self._usual]
        steady = [loss for rank in slow if (loss := self._steady(rank))]
        return steady or [loss for rank in self.steps if (loss := self._sometimes(rank))]

    def phases(self, ranks: Sequence[int], positions: Sequence[int]) -> dict[str, float]:
        """The mean seconds of these ranks' work in these steps, by phase."""
        return {name: fmean(self.work[rank][i][name] for rank in ranks for i in positions) for name in WORK}

    def mean(self, ranks: Sequence[int], phase: str, positions: Sequence[int]) -> float:
        """The mean seconds of a phase, ``total``, ``waits`` and ``cpu_wait`` among them."""
        return fmean(own_time(self.steps[rank][i], phase) for rank in ranks for i in positions)

    def _seconds(self, rank: int, phases: tuple[str, ...]) -> list[float]:
        return [sum(step[phase] for phase in phases) for step in self.work[rank]]

    def _differences(self, rank: int, phases: tuple[str, ...]) -> list[float]:
        """What a rank works longer in these phases than the others on average, in each step."""
        mine = self._seconds(rank, phases)
        if self.usual == (rank,):
            others = [fmean(row) for row in zip(*self._all_seconds(self._others(rank), phases), strict=True)]
        else:
            if phases not in self._of_usual:
                rows = zip(*self._all_seconds(self.usual, phases), strict=True)
                self._of_usual[phases] = [sum(row) for row in rows]
            usual = rank in self._usual
            count = len(self.usual) - usual
            others = [(s - usual * own) / count for s, own in zip(self._of_usual[phases], mine, strict=True)]
        return [own - theirs for own, theirs in zip(mine, others, strict=True)]

    def _all_seconds(self, ranks: Sequence[int], phases: tuple[str, ...]) -> Iterator[list[float]]:
        return (self._seconds(rank, phases) for rank in ranks)

    def _others(self, rank: int) -> tuple[int, ...]:
        """Those that a rank is compared with."""
        usual = tuple(other for other in self.usual if other != rank)
        return usual or tuple(other for other in self.steps if other != rank)

    def _steady(self, rank: int) -> Loss | None:
        in_code = [loss for phase in _CODE if (loss := self._in_most_steps(rank, (phase,), LEAST_SHARE))]
        most = max(in_code, key=lambda loss: loss.seconds, default=None)
        return most or self._in_most_steps(rank, WORK, LEAST_SHARE_COMPUTED)

    def _in_most_steps(self, rank: int, phases: tuple[str, ...], share: float) -> Loss | None:
        """What a rank loses in these phases from the beginning to the end of the run, beyond chance."""
        differences = self._differences(rank, phases)
        kept = _inner_positions(differences)
        if len(kept) < FEWEST_PAIRS:
            return None
        lost, reach = _mean_of([differences[i] for i in kept])
        third = len(kept) // 3
        parts = (kept[:third], kept[third:-third], kept[-third:])
        if any(fmean(differences[i] for i in part) < lost / 3 for part in parts):
            return None
        queued = self.mean((rank,), "cpu_wait", kept) - self.mean(self._others(rank), "cpu_wait", kept)
        whole = fmean(self._seconds(rank, WORK))
        by_cpu = self._delay(rank) * sum(self.phases(self._others(rank), kept)[phase] for phase in phases)
        least = by_cpu + max(LEAST_SECONDS, share * whole, _OF_QUEUE * queued)
        return self._loss(rank, phases, kept, (lost, reach), len(kept)) if lost - reach >= least else None

    def _delay(self, rank: int) -> float:
        """What the CPU of a rank takes longer for the same work than those of its host, as a share of their time.

        Other programs slow a core that they share caches, threads of a core or a virtual machine's time with, and
        nothing tells for how long; but then all phases are slower, also those in which ranks do the same. The phase
        in which the rank is least behind is left out: one may be so short that it differs by chance.
        """
        if rank not in self._delays:
            host = self._recordings[rank].host
            others = [other for other in self._others(rank) if self._recordings[other].host == host]
            ratios = []
            if others:
                every = range(len(self.steps[rank]))
                mine, theirs = self.phases((rank,), every), self.phases(others, every)
                ratios = sorted(mine[phase] / theirs[phase] for phase in WORK if theirs[phase] >= _MEASURABLE)
            self._delays[rank] = max(0.0, ratios[1] - 1) if len(ratios) >= _FEWEST_PHASES else 0.0
        return self._delays[rank]

    def _sometimes(self, rank: int) -> Loss | None:
        """A rank that is slow in a few steps only: told only where it is at the same line in most of them.

        A machine that pauses a rank now and then most likely does so at the line at which the rank spends most of
        its time anyway: that it is the same line says the less, the larger the share of that line is.
        """
        differences = self._differences(rank, _CODE)
        usual = median(differences)
        noise = 1.5 * median(abs(each - usual) for each in differences)
        whole = self._seconds(rank, WORK)
        least = max(LEAST_SECONDS, 0.3 * median(whole), 6 * noise)
        queued = [_OF_QUEUE * own_time(step, "cpu_wait") for step in self.steps[rank]]
        more = [each - usual > max(least, queued[i]) for i, each in enumerate(differences)]
        slow = [i for i, is_slow in enumerate(more) if is_slow and not self._is_apart(i)]
        fast = sum(each - usual < -least for each in differences)
        if len(slow) < max(FEWEST_SLOW, 4 * fast):
            return None
        line = self._line(rank, self._others(rank), slow, fmean(differences[i] for i in slow))
        if line is None:
            return None
        seconds = [self._times(rank, i)[line] for i in range(len(differences))]
        rest = [i for i in range(len(differences)) if i not in slow]
        often = fmean(seconds[i] for i in rest)
        there = [i for i in slow if seconds[i] > _TIMES_LONGER * often]
        lost = [differences[i] for i in there]
        if len(there) < max(FEWEST_SLOW, 0.7 * len(slow)) or sum(lost) < LEAST_SHARE_OF_FEW * sum(whole):
            return None
        at_any_line = fmean(sum(self._times(rank, i).values()) for i in rest)
        if often and _chance(len(slow), len(there), often / at_any_line) > 1 - _CONFIDENCE:
            return None
        loss = self._loss(rank, _CODE, there, (fmean(lost), 0.0), len(differences))
        return replace(loss, line=line, interval=(min(lost), max(lost)))

    def _loss(
        self, rank: int, phases: tuple[str, ...], positions: Sequence[int], lost: tuple[float, float], of: int
    ) -> Loss:
        others, (seconds, reach) = self._others(rank), lost
        mine, theirs = self.phases((rank,), positions), self.phases(others, positions)
        phase = max(phases, key=lambda phase: mine[phase] - theirs[phase])
        line = self._line(rank, others, positions, seconds)
        forward, backward = (mine[name] - theirs[name] for name in ("forward", "backward"))
        computes_more = phase == "backward" and forward > _OF_BACKWARD * backward
        if computes_more and (line is None or line in self._calls(rank, "backwards")):
            phase, line = MODEL, self._line_of_forward(rank, others, positions, forward)
        interval = (seconds - reach, seconds + reach)
        return Loss(rank, others, seconds, interval, phase, phases == WORK, tuple(positions), line, of)

    def _line(
        self,
        rank: int,
        others: Sequence[int],
        positions: Sequence[int],
        lost: float,
        without: Set[Where] = frozenset(),
    ) -> Where | None:
        """The line at which a rank is that much longer than the others, as far as it was looked at."""
        more: Counter[Where] = Counter()
        for i in positions:
            more.update(self._times(rank, i))
            for other in others:
                more.subtract({at: seconds / len(others) for at, seconds in self._times(other, i).items()})
        longer = (item for item in more.items() if item[0] not in without)
        at, seconds = max(longer, key=lambda item: item[1], default=(None, 0.0))
        return at if seconds >= _LEAST_OF_LINE * lost * len(positions) else None

    def _line_of_forward(
        self, rank: int, others: Sequence[int], positions: Sequence[int], lost: float
    ) -> Where | None:
        """The same of what a forward takes longer; its call, where the time is not at one line."""
        line = self._line(rank, others, positions, lost, without=self._calls(rank, "backwards"))
        return line or next(iter(self._calls(rank, "forwards")), None)

    def _calls(self, rank: int, kind: str) -> Set[Where]:
        """The lines of its forwards or backwards."""
        return {_here(call.at) for step in self.steps[rank] for call in getattr(step, kind) if call.at}

    def _times(self, rank: int, position: int) -> Counter[Where]:
        if rank not in self._times_by_step:
            self._times_by_step[rank] = _line_times(self._recordings[rank])
        return self._times_by_step[rank][self.steps[rank][position].index]

    def _is_apart(self, position: int) -> bool:
        """Whether a rank saved or evaluated in this step, which is seldom every rank's work."""
        if position not in self._apart:
            of_ranks = ((of[position], self._recordings[rank]) for rank, of in self.steps.items())
            self._apart[position] = any(_saved_or_evaluated(*of_rank) for of_rank in of_ranks)
        return self._apart[position]


def _saved_or_evaluated(step: TrainingStep, recording: Recording) -> bool:
    end = step.optimizer_steps[0].time
    times = [save.begin for save in recording.saves]
    times += [forward.time for forward in recording.evaluation_forwards]
    return any(end - step.phases["total"] <= time <= end for time in times)


def _line_times(recording: Recording) -> Mapping[int, Counter[Where]]:
    by_step: defaultdict[int, Counter[Where]] = defaultdict(Counter)
    for event in recording.events(LineTimes):
        for line in event.lines:
            by_step[event.step][_here(line.at)] += line.seconds  # type: ignore[assignment]
    return by_step


def _here(at: Where) -> Where:
    return Where(from_here(at.file), at.line, at.function)


def _inner_positions(values: Sequence[float]) -> list[int]:
    """The positions of values without the outermost, in their order."""
    out = math.ceil(len(values) / _OUTLIERS)
    return sorted(sorted(range(len(values)), key=lambda i: values[i])[out:-out])


def _chance(steps: int, there: int, share: float) -> float:
    """That of so many pauses so many or more fall on a line that takes this share of the time."""
    counts = range(there, steps + 1)
    return sum(math.comb(steps, it) * share**it * (1 - share) ** (steps - it) for it in counts)


def _mean_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and how far off it may be."""
    if len(values) < 2:
        return fmean(values), math.inf
    z = NormalDist().inv_cdf(0.5 + _CONFIDENCE / 2)
    free = len(values) - 1
    student = z * (1 + (z**2 + 1) / (4 * free) + (5 * z**4 + 16 * z**2 + 3) / (96 * free**2))
    return fmean(values), student * stdev(values) / math.sqrt(len(values))
