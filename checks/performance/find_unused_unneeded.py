from ddpdoctor.check import Check, Confidence, Judgement, NotMeasured, Passed
from ddpdoctor.frameworks import by_framework
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.recorder.events.training import Wrapper
from ddpdoctor.trace import Recording, Trace, of_model
from ddpdoctor.trace.source_causes import chosen_part

_FEWEST = 5
"""Training steps in which every rank has to have used everything."""


class FindUnusedUnneeded(Check):
    """find_unused_parameters=True although every parameter is used.

    What it finds:
        A wrapper that looks for unused parameters in every step and finds none, on any rank, in any of the steps
        that DDP keeps count of: the first ten, and then one in a hundred. Not where an update of any other step came
        without a gradient of one of its parameters: a part that is frozen, or left out, later; nor where the script's
        model chooses among several layers by what it computes: experts by token, layers that are left out at random.

    Why it matters:
        DDP walks the whole graph after each forward, and copies a map of what was used to every rank. The result is
        the same without.

    Example:
        DistributedDataParallel(model, find_unused_parameters=True)      # left from an earlier model

    Fix:
        Leave the argument out. Keep it where later steps take another path through the model.
    """

    code = "DD603"
    title = "DDP searches for unused parameters only where there are some"
    fix_with = by_framework(
        lightning='Trainer(strategy="ddp")',
        fabric='Fabric(strategy="ddp")',
        transformers="TrainingArguments(..., ddp_find_unused_parameters=False)",
        accelerate="Accelerator()    # without DistributedDataParallelKwargs(find_unused_parameters=True)",
        ignite="model = idist.auto_model(model)",
        ray="model = prepare_model(model)",
    )
    log_words = ("find_unused_parameters=True was specified",)

    def examine_run(self, trace: Trace) -> Judgement:
        recordings = trace.training()
        trace.require_end()
        searching = [wrapper for wrapper in next(iter(recordings.values())).wrappers if _searches(wrapper)]
        self.require(searching, "no wrapper searches for unused parameters")
        unused = [
            (wrapper, [_unused(recording, wrapper.index) for recording in recordings.values()])
            for wrapper in searching
            if not any(_left_out(recording, wrapper) for recording in recordings.values())
        ]
        if (part := chosen_part(next(iter(recordings.values())).script)) is not None:
            return Passed(f"inputs choose which parts of the model are used, at {part.file}:{part.line}")
        known = [(wrapper, steps) for wrapper, steps in unused if min(map(len, steps)) >= _FEWEST]
        findings = [
            self.warn(
                f"find_unused_parameters=True found no unused parameter in {min(map(len, steps))} training steps",
                ranks=tuple(recordings),
                where=wrapper.at,
                confidence=Confidence.LIKELY,
                about=of_model(wrapper),
            )
            for wrapper, steps in known
            if not any(map(any, steps))
        ]
        if not findings and len(known) < len(unused):
            reason = "too few training steps show which parameters were used"
            raise NotMeasured(reason, cut_short=trace.shortened is not None)
        return findings or Passed("there are unused parameters to search for")

    def examine_log(self, log: Log) -> Judgement:
        line = log.first(
            r"find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters"
        )
        if line is None:
            return NOT_IN_OUTPUT
        return self.warn("find_unused_parameters=True found no unused parameter", **log_fields(line))


def _searches(wrapper: Wrapper) -> bool:
    return bool(wrapper.flags.get("find_unused_parameters")) and not wrapper.flags.get("static_graph")


def _unused(recording: Recording, wrapper: int) -> list[int]:
    """Bytes of unused parameters in each step that DDP kept count of."""
    forwards = (forward for forward in recording.forwards if forward.wrapper == wrapper)
    return [forward.unused for forward in forwards if forward.unused is not None]


def _left_out(recording: Recording, wrapper: Wrapper) -> bool:
    """Whether an update came without the gradient of a parameter, in whatever step."""
    return any(
        gradient is None and key in wrapper.trained
        for update in recording.updates
        for key, gradient in (update.gradients or {}).items()
    )
