from pathlib import PurePath

from ddpdoctor.check import Check
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.redact import quote
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.files import Save


class WrappedStateSaved(Check):
    """A checkpoint holds the names of the wrapper.

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
            torch.save(ddp_model.module.state_dict(), "last.pt")
    """

    code = "DD407"
    name = "wrapped-state-saved"
    family = Family.CHECKPOINT
    title = "checkpoints hold the bare model's names"

    def examine_run(self, trace: Trace) -> Judgement:
        saves = {rank: one.saves for rank, one in trace.recordings().items() if one.saves}
        if not saves:
            return Skipped("no rank saved anything")
        wrapped = {rank: bad for rank, own in saves.items() if (bad := _first_wrapped(own))}
        if wrapped:
            return [self._wrapped(wrapped)]
        return Passed("what was saved carries no wrapper's names")

    def _wrapped(self, wrapped: dict[int, Save]) -> Finding:
        save = next(iter(wrapped.values()))
        name = quote(PurePath(save.path).name) if save.path else "a buffer"
        return self.info(
            f"{ranks_phrase(wrapped)} {'saves' if len(wrapped) == 1 else 'save'} names that begin with "
            f"{save.prefix} to {name}",
            why="The state dict of the wrapper has its prefix before every name. A bare model cannot load it "
            "strictly, "
            "and with strict=False loads nothing.",
            fix="torch.save(model.module.state_dict(), path)    # of torch.compile: model._orig_mod.state_dict()",
            ranks=tuple(wrapped),
            where=save.at,
            evidence=tuple(Evidence(f"prefix {own.prefix}", (rank,)) for rank, own in wrapped.items()),
        )


def _first_wrapped(saves: tuple[Save, ...]) -> Save | None:
    return next((save for save in saves if save.prefix), None)
