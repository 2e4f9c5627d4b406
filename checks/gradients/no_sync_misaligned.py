from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace, TrainingStep, shown_at
from ddpdoctor.trace.source_causes import sync_decision
from ddpdoctor.trace.sync import MissedReduction, finding_fields, unaveraged_updates
from ddpdoctor.unreached.windows import steps_without_sync


class NoSyncMisaligned(Check):
    """The backward before the optimizer's step did not all-reduce gradients.

    What it finds:
        Updates whose last micro-batch had its forward while synchronisation was off: inside no_sync(), or with
        require_backward_grad_sync set to False. What was accumulated since the last all-reduce stays local.

    Why it matters:
        The accumulated gradients are not averaged, so the weights of the ranks drift apart from the first such step on,
        without an error. Whether a backward
        reduces is decided in the forward before it, so a flag that is set between the two comes too late.

    Example:
        The first micro-batch of each window reduces, where the last should:
            for i, batch in enumerate(loader):
                sync = i % accumulate == 0
                with nullcontext() if sync else model.no_sync():
                    model(batch).mean().backward()
                if (i + 1) % accumulate == 0:
                    optimizer.step()

    Fix:
        Let the micro-batch before the step reduce, and put forward and backward both inside the context:
            sync = (i + 1) % accumulate == 0 or i + 1 == len(loader)
            with nullcontext() if sync else model.no_sync():
                (criterion(model(x), y) / accumulate).backward()
    """

    code = "DD202"
    title = "the backward before every update all-reduces gradients"
    explained_by = ("DD225",)
    unreached = (
        steps_without_sync,
        "the last backward of a window would run under no_sync(): micro-batch {number} of {size}",
    )

    def examine_run(self, trace: Trace) -> Findings:
        for updates in unaveraged_updates(trace, MissedReduction.NO_SYNC):
            first = next((update for update in updates if update.differing), updates[0])
            step = next(iter(first.update.steps.values()))
            fields = finding_fields(updates, first)
            script = next(iter(trace.recordings().values())).script
            if decision := sync_decision(fields["where"], script):
                fields["evidence"] += shown_at("backward", fields["where"])
                fields["where"] = decision
            yield self.fail(
                f"optimizer.step() used gradients that were not all-reduced on {ranks_phrase(first.by_rank)}: "
                + _window(step, first.wrapper.index),
                **fields,
            )
        yield Passed("no update followed a backward with synchronisation off")


def _window(step: TrainingStep, wrapper: int) -> str:
    """Which backwards before the update reduced."""
    count = plural(len(step.backwards), "backward")
    reduced = [i + 1 for i, backward in enumerate(step.backwards) if wrapper in backward.reduced]
    if reduced:
        return f"backward {reduced[-1]} of {len(step.backwards)} was, and the last ran under no_sync()"
    if any(forward.synced for forward in step.forwards if forward.wrapper == wrapper):
        return f"none of the {count} of the window was"
    return (
        "the only backward ran under no_sync()"
        if len(step.backwards) == 1
        else f"all {count} of the window ran under no_sync()"
    )
