from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise

from ddpdoctor.check import Check, Evidence, Findings, Kind, Passed
from ddpdoctor.recorder.events.updates import SchedulerStep
from ddpdoctor.text import by_state, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace, on_each_rank
from ddpdoctor.trace.schedules import counted_undivided


class SchedulerSteps(Check):
    """A scheduler is stepped several times at once, or unequally on the ranks.

    What it finds:
        A learning-rate scheduler whose step is called two or more times wherever it is stepped, once for each rank
        for instance; and one that some ranks step less often than others. One step for each micro-batch is left alone.
        In a run that was not cut, also a schedule whose length counts the batches of the undivided dataset.

    Why it matters:
        The schedule ends after a part of the training, at a learning rate near zero, with nothing to be seen but a
        loss that stays. Where ranks step it unequally, their learning rates differ, and so do the weights.

    Example:
        A loop over ranks was meant to keep the schedule of one GPU:
            for _ in range(dist.get_world_size()):
                scheduler.step()

    Fix:
        One scheduler.step() for each optimizer.step(), on every rank; and a number of total steps that counts
        updates: epochs * len(loader) // accumulate.
    """

    code = "DD219"
    title = "schedulers step once for each update, on every rank"
    explained_by = ("DD106", "DD225")

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.training()
        counts = {rank: _counts(recording) for rank, recording in recordings.items()}
        self.require(any(counts.values()), "no scheduler was stepped")
        unequal = _unequal(trace, recordings)
        several = _several(recordings, counts, trace.world_size or len(recordings))
        for scheduler, totals in unequal.items():
            most = max(totals.values())
            late = tuple(rank for rank, count in totals.items() if count < most)
            called = _calls(recordings[next(rank for rank in totals if rank not in late)], scheduler)[0]
            yield self.fail(
                f"{called.name} is stepped {min(totals.values())} times on {ranks_phrase(late)} and "
                f"{most} times on the other ranks",
                ranks=late,
                where=called.at,
                evidence=by_state(totals, lambda count: f"{plural(count, 'step')} of the scheduler"),
                about=Kind.SCHEDULER.of(f"{called.name} {scheduler}"),
            )
        for scheduler, times in several.items():
            if scheduler not in unequal:
                ranks = tuple(rank for rank, counted in counts.items() if scheduler in counted)
                called = _calls(recordings[ranks[0]], scheduler)[0]
                alike = ", as many as there are ranks" if times == len(recordings) else ""
                places = len(counts[ranks[0]][scheduler])
                yield self.warn(
                    f"{called.name} is stepped {times} times at once{alike}",
                    why=f"Its schedule is over after 1/{times} of the training, unless its length was chosen for that.",
                    where=called.at,
                    evidence=(Evidence(f"so in all of {places} places between updates", ranks),),
                    about=Kind.SCHEDULER.of(f"{called.name} {scheduler}"),
                )
        for it in counted_undivided(recordings) if trace.shortened is None and not trace.broken else ():
            yield self.warn(
                f"the schedule of {it.last.name} has {it.length} steps, of which the whole run takes {it.last.epoch}",
                why=f"Its length counts the batches of all {it.loader.samples} samples, and the sampler gives each "
                f"rank 1/{len(recordings)} of them. The learning rate never comes to the end of its schedule.",
                fix="count the steps that a rank takes: epochs * len(loader)",
                where=it.last.made,
                ranks=tuple(recordings),
                about=Kind.SCHEDULER.of(f"{it.last.name} {it.last.scheduler}"),
            )
        yield Passed(f"{plural(len(next(iter(counts.values()))), 'scheduler')} stepped alike on every rank")


def _unequal(trace: Trace, recordings: Mapping[int, Recording]) -> dict[int, dict[int, int]]:
    """The schedulers that ranks stepped unequally, and how often each did; none of a run that was cut short."""
    updates = {len(recording.steps) for recording in recordings.values()}
    exits = [recording.exit for recording in recordings.values() if recording.exit]
    if trace.broken or any(it.how == "shortened" for it in exits) or len(recordings) < 2 or len(updates) > 1:
        return {}
    stepped = {call.scheduler for _, call in on_each_rank(recordings, _calls)}
    totals = {
        scheduler: {rank: len(_calls(recording, scheduler)) for rank, recording in recordings.items()}
        for scheduler in sorted(stepped)
    }
    return {scheduler: by_rank for scheduler, by_rank in totals.items() if len(set(by_rank.values())) > 1}


def _several(
    recordings: Mapping[int, Recording], counts: Mapping[int, Mapping[int, list[int]]], size: int
) -> dict[int, int]:
    """The schedulers that are stepped several times wherever they are stepped, and how often."""
    often = {
        (scheduler, times[0])
        for counted in counts.values()
        for scheduler, times in counted.items()
        if len(times) > 1 and len(set(times)) == 1 and times[0] > 1
    }
    # accelerate steps schedulers once for each rank: their length was counted before data was divided.
    often -= {(call.scheduler, size) for _, call in on_each_rank(recordings, _calls) if call.by}
    return dict(sorted(often, reverse=True))


def _counts(recording: Recording) -> dict[int, list[int]]:
    """How often each scheduler was stepped at once: between two updates, without a backward of a micro-batch.

    What came after the last update may be cut short.
    """
    counted: defaultdict[int, list[int]] = defaultdict(list)
    steps = list(recording.steps) if len(recording.steps) > 1 else [*recording.steps] * 2
    for step, later in pairwise(steps):
        at_once = Counter(
            (call.scheduler, sum(step.time < backward.time < call.time for backward in later.backwards))
            for call in step.schedulers
        )
        for (scheduler, _), times in at_once.items():
            counted[scheduler].append(times)
    return dict(sorted(counted.items()))


def _calls(recording: Recording, scheduler: int | None = None) -> list[SchedulerStep]:
    calls = [call for step in recording.steps for call in step.schedulers]
    return [call for call in calls if scheduler is None or call.scheduler == scheduler]
