from ddpdoctor.check import Check
from ddpdoctor.logs.log import UNSAID, Log, told_by
from ddpdoctor.model import Family, Judgement

_UNNEEDED = (
    r"find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters"
)


class FindUnusedUnneeded(Check):
    """find_unused_parameters=True although every parameter is used.

    What it finds:
        A wrapper that looks for unused parameters in every step and finds none.

    Why it matters:
        DDP walks the whole graph after each forward, and copies a map of what was used to every rank. The result is
        the same without.

    Example:
        DistributedDataParallel(model, find_unused_parameters=True)      # left from an earlier model

    Fix:
        Leave the argument out. Keep it where later steps take another path through the model.
    """

    code = "DD603"
    name = "find-unused-unneeded"
    family = Family.PERFORMANCE
    title = "nobody looks for unused parameters in vain"
    log_words = ("find_unused_parameters=True was specified",)

    def examine_log(self, log: Log) -> Judgement:
        line = log.first(_UNNEEDED)
        if line is None:
            return UNSAID
        return [
            self.warn(
                "find_unused_parameters=True found no unused parameter",
                why="The graph is walked after every forward, and what was used is sent to all ranks, for "
                "nothing so far.",
                fix="DistributedDataParallel(model)     # keep the argument where later steps take another path",
                **told_by(line),
            )
        ]
