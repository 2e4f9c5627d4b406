from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed
from ddpdoctor.outliers import by_state
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import SchedulerStep


class SchedulerSteps(Check):
    """A scheduler is stepped several times at once, or unequally on the ranks.

    What it finds:
        A learning-rate scheduler whose step is called two or more times wherever it is stepped, once for each rank
        for instance; and one that some ranks step less often than others.

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
    name = "scheduler-steps"
    family = Family.MODEL
    title = "schedulers step once for each update, on every rank"
    explained_by = ("DD106", "DD225")

    def examine_run(self, trace: Trace) -> Judgement:
        seen = trace.training()
        counts = {rank: _counts(one) for rank, one in seen.items()}
        if not any(counts.values()):
            raise NotMeasured("no scheduler was stepped")
        if unequal := self._unequal(trace, seen):
            return unequal
        if several := self._several(seen, counts, trace.world_size or len(seen)):
            return several
        return Passed(f"{plural(len(next(iter(counts.values()))), 'scheduler')} stepped alike on every rank")

    def _unequal(self, trace: Trace, seen: Mapping[int, Recording]) -> Finding | None:
        updates = {len(one.steps) for one in seen.values()}
        ended_early = any(one.exit and one.exit.how == "shortened" for one in seen.values())
        if trace.broken or ended_early or len(seen) < 2 or len(updates) > 1:
            return None
        stepped = {
            called.scheduler for one in seen.values() for step in one.steps for called in step.schedulers
        }
        for scheduler in sorted(stepped):
            totals = {rank: len(_calls(one, scheduler)) for rank, one in seen.items()}
            if len(set(totals.values())) > 1:
                return self._apart(seen, scheduler, totals)
        return None

    def _apart(self, seen: Mapping[int, Recording], scheduler: int, totals: Mapping[int, int]) -> Finding:
        most = max(totals.values())
        late = tuple(rank for rank, count in totals.items() if count < most)
        called = _calls(seen[next(rank for rank in totals if rank not in late)], scheduler)[0]
        return self.fail(
            f"{called.name} is stepped {min(totals.values())} times on {ranks_phrase(late)} and {most} times on the "
            "others",
            why="A scheduler changes the learning rate of its own rank only. Ranks that step it unequally take unequal "
            "steps with equal gradients, and their weights drift apart.",
            fix="scheduler.step()    # on every rank, under no condition that differs between ranks",
            ranks=late,
            where=called.at,
            evidence=by_state(
                {rank: f"{plural(count, 'step')} of the scheduler" for rank, count in totals.items()}
            ),
        )

    def _several(
        self, seen: Mapping[int, Recording], counts: Mapping[int, Mapping[int, list[int]]], size: int
    ) -> Finding | None:
        often = {
            (scheduler, times[0])
            for own in counts.values()
            for scheduler, times in own.items()
            if len(times) > 1 and len(set(times)) == 1 and times[0] > 1
        }
        often -= {(number, size) for own in seen.values() for number in _of_a_framework(own)}
        if not often:
            return None
        scheduler, times = min(often)
        ranks = tuple(rank for rank, own in counts.items() if scheduler in own)
        called = _calls(seen[ranks[0]], scheduler)[0]
        alike = ", as many as there are ranks" if times == size else ""
        return self.warn(
            f"{called.name} is stepped {times} times at once{alike}",
            why=f"Its schedule is over after 1/{times} of the training, unless its length was chosen for that.",
            fix="scheduler.step()    # once",
            ranks=ranks,
            where=called.at,
            evidence=(
                Evidence(f"so in all of {len(counts[ranks[0]][scheduler])} places between updates", ranks),
            ),
        )


def _of_a_framework(one: Recording) -> set[int]:
    """The schedulers that accelerate steps once for each rank: their length was counted before data was divided."""
    return {called.scheduler for step in one.steps for called in step.schedulers if called.by}


def _counts(one: Recording) -> dict[int, list[int]]:
    """How often each scheduler was stepped between two updates, where it was; the last may be cut short."""
    steps = one.steps[:-1] if len(one.steps) > 1 else one.steps
    indices = {called.scheduler for step in one.steps for called in step.schedulers}
    counted = {
        index: [sum(called.scheduler == index for called in step.schedulers) for step in steps]
        for index in sorted(indices)
    }
    return {index: [count for count in counts if count] for index, counts in counted.items()}


def _calls(one: Recording, scheduler: int) -> list[SchedulerStep]:
    return [called for step in one.steps for called in step.schedulers if called.scheduler == scheduler]
