from collections import Counter

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed, Where
from ddpdoctor.frameworks import by_framework
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace, TrainingStep

_SHARE = 0.8
"""Of the updates, in which it has to be so."""


class SyncEveryMicrobatch(Check):
    """Gradients are all-reduced after every micro-batch, not only before the update.

    What it finds:
        Training that accumulates gradients over several backwards of one line, and all-reduces in each of them.

    Why it matters:
        The result is right, and the network carries the gradients several times for each update. On a network that
        is the limit, a step takes that many times as long.

    Example:
        for i, batch in enumerate(loader):
            (loss_of(model, batch) / 4).backward()          # all-reduces every time
            if (i + 1) % 4 == 0:
                optimizer.step()

    Fix:
        Average in the last micro-batch only, forward included:
            last = (i + 1) % 4 == 0
            with contextlib.nullcontext() if last else model.no_sync():
                (loss_of(model, batch) / 4).backward()
    """

    code = "DD602"
    title = "gradients are all-reduced once for each update"
    fix_with = by_framework(
        lightning="Trainer(accumulate_grad_batches=N)    # for manual optimization: with "
        "self.trainer.model.no_sync():",
        fabric="with fabric.no_backward_sync(model, enabled=not last_micro_batch):\n    "
        "fabric.backward(loss_of(model, batch))",
        transformers="TrainingArguments(..., gradient_accumulation_steps=N)",
        accelerate="accelerator = Accelerator(gradient_accumulation_steps=N)\n"
        "with accelerator.accumulate(model):\n    accelerator.backward(loss_of(model, batch))",
    )

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training_of_several()
        recording = next(iter(recordings.values()))
        updates = [step for step in recording.steps if step.backwards and _is_plain(step)]
        self.require(updates, "no update followed a backward, except inside of an optimizer")
        often = [times for step in updates if (times := _several_times(step))]
        if len(often) < 2 or len(often) < _SHARE * len(updates):
            once = len(updates) - len(often)
            return Passed(f"gradients were averaged once in {once} of {len(updates)} updates")
        lines = dict.fromkeys(at for times in often for at in times)
        return [self._often(at, [it[at] for it in often if at in it], tuple(recordings)) for at in lines]

    def _often(self, at: Where | None, counts: list[int], ranks: tuple[int, ...]) -> Finding:
        """Of the backwards in one line."""
        times = Counter(counts).most_common(1)[0][0]
        return self.warn(
            f"gradients are all-reduced {times} times for each update on {ranks_phrase(ranks)}",
            where=at,
            evidence=(
                Evidence(f"{times} backwards with an all-reduce in each of {len(counts)} updates", ranks),
            ),
        )


def _is_plain(step: TrainingStep) -> bool:
    """Whether optimizers took what the script had accumulated: one with a closure needs the average each time."""
    return bool(step.optimizer_steps) and not any(update.closure for update in step.optimizer_steps)


def _several_times(step: TrainingStep) -> dict[Where | None, int]:
    """The lines whose backwards averaged the gradients of one wrapper more than once, and how often.

    Different lines are different losses.
    """
    counted = Counter((backward.at, wrapper) for backward in step.backwards for wrapper in backward.reduced)
    return {at: count for (at, _), count in sorted(counted.items(), key=lambda item: item[1]) if count > 1}
