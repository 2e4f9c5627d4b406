from ddpdoctor.check import Check, Findings, Kind, Passed
from ddpdoctor.text import ranks_do
from ddpdoctor.trace import Trace, by_line, on_each_rank, on_ranks
from ddpdoctor.trace.instances import files


class WrappedStateSaved(Check):
    """A checkpoint has the wrapper's prefix in its names.

    What it finds:
        Saved states whose names begin with "module." (of DistributedDataParallel) or "_orig_mod." (of
        torch.compile). This is information only: a script that loads into the same wrapper is right.

    Why it matters:
        Whoever loads the file without the wrapper, for evaluation or on one GPU, gets an error, or with
        strict=False an untrained model.

    Example:
        torch.save(ddp_model.state_dict(), "last.pt")

    Fix:
        Save the bare model:
            torch.save(ddp_model.module.state_dict(), "last.pt")    # of torch.compile: model._orig_mod.state_dict()
    """

    code = "DD407"
    title = "checkpoints have the unwrapped model's names"

    def examine_run(self, trace: Trace) -> Findings:
        saves = on_each_rank(trace.recordings(), lambda recording: recording.saves)
        self.require(saves, "no rank saved anything")
        wrapped = by_line((rank, save) for rank, save in saves if save.prefix)
        for of_line in wrapped:
            save = next(iter(of_line.values()))
            yield self.info(
                f"{ranks_do(of_line, 'save')} names with the prefix {save.prefix!r} to {files([save.path])}",
                **on_ranks(of_line, lambda save: f"prefix {save.prefix}"),
                about=Kind.PATH.of(*filter(None, dict.fromkeys(save.path for save in of_line.values()))),
            )
        yield Passed("no saved name has a wrapper's prefix")
