from ddpdoctor.check import Check, Findings, Kind, Passed
from ddpdoctor.recorder.events.files import LogWriter
from ddpdoctor.text import plural, quote, ranks_phrase
from ddpdoctor.trace import Trace, by_first_line, by_key, on_each_rank

_FILE = "logging"
_OF_VALUES = {
    "why": "A value that every rank logs appears once for each rank: curves show several points for a step, and "
    "runs multiply. A rank that logs nothing still leaves an empty event file or run.",
    "fix": "if dist.get_rank() == 0:\n    writer = SummaryWriter(folder)    # and write to it on this rank only",
}
_OF_A_FILE = {
    "why": "Each message is in the file once for each rank, and lines of two ranks may run together. A handler "
    'with mode "w" also empties the file, with what other ranks have written by then.',
    "fix": "if dist.get_rank() == 0:\n    logger.addHandler(logging.FileHandler(path))\n"
    'Or a file for each rank: logging.FileHandler(f"{path}.{dist.get_rank()}")',
}


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
    title = "one rank writes the experiment's log"

    def examine_run(self, trace: Trace) -> Findings:
        opened = on_each_rank(trace.recordings_of_several(), lambda recording: recording.events(LogWriter))
        self.require(opened, "no logger was opened")
        targets = by_key(opened, lambda writer: (writer.kind, writer.target))
        shared = {next(iter(writers.values())).target: writers for writers in targets if len(writers) > 1}
        lines = by_first_line(shared, lambda writer: (writer.at, writer.kind))
        for logs in lines:
            # Of the logs that one line opens.
            (target, writers), *others = logs.items()
            first = next(iter(writers.values()))
            more = f" and {plural(len(others), 'more target')}" if others else ""
            is_file = first.kind == _FILE
            what = "log to" if is_file else f"opened {first.kind} for"
            yield self.warn(
                f"{ranks_phrase(writers)} each {what} {quote(target)}{more}",
                **(_OF_A_FILE if is_file else _OF_VALUES),
                ranks=tuple(sorted({rank for log in logs.values() for rank in log})),
                where=first.at,
                about=Kind.PATH.of(*logs),
            )
        yield Passed("each log is written by one rank")
