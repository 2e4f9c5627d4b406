from ddpdoctor.check import Check
from ddpdoctor.model import Finding, Judgement, Passed
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.instances import shown_at
from ddpdoctor.trace.source_causes import sync_decision
from ddpdoctor.trace.sync import MissedReduction, Unaveraged, finding_fields, unaveraged_updates


class NoSyncMisaligned(Check):
    """The backward before the optimizer's step did not all-reduce gradients.

    What it finds:
        Updates whose last micro-batch had its forward while synchronisation was off: inside no_sync(), or with
        require_backward_grad_sync set to False. What was accumulated since the last all-reduce stays local.

    Why it matters:
        The weights of the ranks drift apart from the first such step on, without an error. Whether a backward
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
    """

    code = "DD202"
    title = "the backward before every update all-reduces gradients"
    explained_by = ("DD225",)

    def examine_run(self, trace: Trace) -> Judgement:
        return [
            self._misaligned(updates, trace) for updates in unaveraged_updates(trace, MissedReduction.NO_SYNC)
        ] or Passed("no update followed a backward with synchronisation off")

    def _misaligned(self, updates: list[Unaveraged], trace: Trace) -> Finding:
        first = next((update for update in updates if update.differing), updates[0])
        window = next(iter(first.update.steps.values())).backwards
        reduced = [i + 1 for i, backward in enumerate(window) if first.wrapper.index in backward.reduced]
        fields = finding_fields(updates, first, "{} without it")
        script = next(iter(trace.recordings().values())).script
        if decision := sync_decision(fields["where"], script):
            fields["evidence"] += shown_at("backward", fields["where"])
            fields["where"] = decision
        return self.fail(
            f"the backward before the optimizer's step did not reduce on {ranks_phrase(first.by_rank)}: "
            + _window(len(window), reduced),
            why="Its forward ran under no_sync(), which turns off the all-reduce of its backward as well. The "
            "accumulated gradients stay each rank's own, and the weights drift apart.",
            fix="sync = (i + 1) % accumulate == 0 or i + 1 == len(loader)\n"
            "with nullcontext() if sync else model.no_sync():    # around forward and backward\n"
            "    loss = criterion(model(x), y) / accumulate\n"
            "    loss.backward()",
            **fields,
        )


def _window(backwards: int, reduced: list[int]) -> str:
    if not reduced:
        return f"none of {plural(backwards, 'backward')} of a window did"
    return f"number {reduced[-1]} of {plural(backwards, 'backward')} of a window did, the last did not"
