from collections import defaultdict
from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.model import Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.redact import quote
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.files import LogWriter
from ddpdoctor.trace.recording import Recording


class LoggingOnEveryRank(Check):
    """Every rank opens the same experiment log.

    What it finds:
        A TensorBoard writer or a wandb or mlflow run that several ranks opened with the same target, or a log file
        that several ranks wrote to, apart from a warning now and then.

    Why it matters:
        Each value is logged as many times as there are ranks: curves become zigzags, runs multiply, and files
        that several processes write have lines of two ranks run together.

    Example:
        writer = SummaryWriter("runs/experiment")       # on every rank

    Fix:
        Log on one rank:
            writer = SummaryWriter("runs/experiment") if dist.get_rank() == 0 else None
    """

    code = "DD606"
    name = "logging-on-every-rank"
    family = Family.PERFORMANCE
    title = "one rank writes the experiment's log"

    def examine_run(self, trace: Trace) -> Judgement:
        seen = trace.recordings()
        if len(seen) < 2:
            return Skipped("one rank is the only one to log")
        shared = {key: writers for key, writers in _by_target(seen).items() if len(writers) > 1}
        if shared:
            (kind, target), writers = next(iter(shared.items()))
            return self._shared(kind, target, writers)
        if not any(one.log_writers for one in seen.values()):
            return Skipped("no logger was opened")
        return Passed("each log is written by one rank")

    def _shared(self, kind: str, target: str, writers: Mapping[int, LogWriter]) -> Finding:
        return self.warn(
            f"{ranks_phrase(writers)} each opened {kind} for {quote(target)}",
            why="Each value is written once by every rank, so curves show several points for a step, and what ranks "
            "write into one file at a time is mixed.",
            fix="if dist.get_rank() == 0:\n    open the log here, and write to it on this rank only",
            ranks=tuple(writers),
            where=next(iter(writers.values())).at,
        )


def _by_target(seen: Mapping[int, Recording]) -> dict[tuple[str, str], dict[int, LogWriter]]:
    found: defaultdict[tuple[str, str], dict[int, LogWriter]] = defaultdict(dict)
    for rank, recording in seen.items():
        for writer in recording.log_writers:
            found[writer.kind, writer.target].setdefault(rank, writer)
    return found
