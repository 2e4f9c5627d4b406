import math
from collections.abc import Mapping, Sequence

from ddpdoctor.check import Check, Evidence, Judgement, NotMeasured, Passed, Where
from ddpdoctor.text import by_state, plural, ranks_phrase
from ddpdoctor.trace import Recording, Trace
from ddpdoctor.trace.lines import JobLines
from ddpdoctor.trace.loop_exits import loops_of
from ddpdoctor.trace.sync import carries_weights
from ddpdoctor.unreached.decisions import steps_left_out


class StepSkipped(Check):
    """Ranks took different numbers of optimizer steps.

    What it finds:
        Ranks that ran as many backwards as the others and took fewer steps of an optimizer: the step, or the
        decision to skip it, depends on the rank or on its own data.

    Why it matters:
        The gradients were averaged, and one rank did not use them. From then on its weights differ, and every later
        gradient is the average over different models. Nothing is raised.

    Example:
        The loss is NaN on one rank, after the backward:
            loss.backward()
            if torch.isnan(loss):
                continue
            optimizer.step()

    Fix:
        Decide together, on a value that is equal on all ranks:
            bad = torch.isnan(loss).float()
            dist.all_reduce(bad)
            if bad.item() > 0:
                continue
    """

    code = "DD225"
    title = "every rank takes the same optimizer steps"
    explained_by = ("DD204",)
    unreached = (steps_left_out, "some ranks would leave out optimizer.step(), under {test}")

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        if trace.broken:
            raise NotMeasured(trace.broken)
        if any(step.joined for recording in recordings.values() for step in recording.steps):
            raise NotMeasured("ranks differ by design inside a Join")
        backwards = {rank: len(recording.backwards) for rank, recording in recordings.items()}
        steps = {rank: recording.step_count or len(recording.steps) for rank, recording in recordings.items()}
        most, fewest = max(steps.values()), min(steps.values())
        if most == fewest:
            return Passed(f"every rank took {plural(most, 'training step')}")
        self.require(_equal_work(recordings, backwards), "ranks ran different numbers of batches")
        late = tuple(rank for rank, count in steps.items() if count < most)
        if all(_gets_weights(recordings[rank]) for rank in late):
            raise NotMeasured("ranks that skip updates receive the weights from other ranks")
        leader = recordings[next(rank for rank, count in steps.items() if count == most)]
        where, decided = _decided_at(recordings, late, leader)
        states = {
            rank: f"{plural(count, 'optimizer step')} in {plural(backwards[rank], 'backward')}"
            for rank, count in steps.items()
        }
        return self.fail(
            f"{ranks_phrase(late)} took {plural(fewest, 'optimizer step')}, the other ranks {most}",
            ranks=late,
            where=where,
            evidence=(*decided, *by_state(states)),
        )


def _gets_weights(recording: Recording) -> bool:
    """Whether weights may be broadcast in its training, and not only before."""
    begun = min((backward.time for backward in recording.backwards), default=math.inf)
    return any(
        call.time > begun
        and "broadcast" in call.operation
        and (carries_weights(call) or "object" in call.operation)
        for call in recording.collectives
    )


def _decided_at(
    recordings: Mapping[int, Recording], late: Sequence[int], leader: Recording
) -> tuple[Where | None, tuple[Evidence, ...]]:
    """The condition at which ranks went other ways in the first step that they did not end together, with what it
    looked at; else the only branch by which the update may be left out, or the update."""
    own = recordings[late[0]].steps
    pairs = zip(own, leader.steps, strict=False)
    step = next((it.index for it, other in pairs if len(it.backwards) > len(other.backwards)), None)
    lines, update = JobLines.of(recordings), leader.steps[0].optimizer_steps[-1].at
    parting = lines.way_out(late, update, step) if lines and step is not None else None
    if parting:
        return parting.at, parting.evidence()
    backward = leader.steps[0].backwards[-1].at if leader.steps[0].backwards else None
    return loops_of(leader, update).skip_branch(backward, update) or update, ()


def _equal_work(recordings: Mapping[int, Recording], backwards: Mapping[int, int]) -> bool:
    """Whether ranks did the same but for the update; told only of runs that were written down in full."""
    complete = all(len(it.steps) == (it.step_count or len(it.steps)) for it in recordings.values())
    return complete and len(set(backwards.values())) == 1
