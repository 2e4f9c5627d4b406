"""``ddpdoctor explain FILE...``: the root cause in a job's output, and in the dumps of its flight recorders."""

import json
import os
import sys
import time

from ddpdoctor import registry
from ddpdoctor.cli.checks import explain, is_subject, write
from ddpdoctor.cli.dumps import judge_dumps, split_inputs, without_messengers
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import ExplainOptions
from ddpdoctor.cli.page_sections import with_sections
from ddpdoctor.cli.report_output import ReportOutput
from ddpdoctor.files import first_written
from ddpdoctor.judge import Verdict, compose
from ddpdoctor.logs import root_cause
from ddpdoctor.logs.input_files import UnreadableInput, streams
from ddpdoctor.logs.nccl_facts import read_facts, table
from ddpdoctor.logs.read import read
from ddpdoctor.model import Level, Report, Source
from ddpdoctor.redact import clean
from ddpdoctor.report import Format
from ddpdoctor.report.detail import evidence_lines
from ddpdoctor.report.terminal import width_of_stdout
from ddpdoctor.text import plural
from ddpdoctor.trace import Trace


def run_explain(options: ExplainOptions) -> int:
    """Write a check's page; or read, judge, and write the report. Returns the exit status. UsageError where there is no
    such check, a file cannot be read, or the report cannot be written."""
    if is_subject(options.subjects):
        return write(explain(options.subjects[0]))
    output = ReportOutput(options)
    try:
        if options.facts:
            facts = clean(_facts(options), os.environ)
            output.write_each(lambda format, _: _facts_text(facts, format))
            return 0
    except UnreadableInput as unreadable:
        raise UsageError(str(unreadable)) from None
    report = explain_output(options)
    output.write(report)
    return report.exit_status


def explain_output(options: ExplainOptions) -> Report:
    """Read the output and judge it; UsageError where a file cannot be read."""
    try:
        return _report(options)
    except UnreadableInput as unreadable:
        raise UsageError(str(unreadable)) from None


def _report(options: ExplainOptions) -> Report:
    started = time.monotonic()
    given = split_inputs(options.subjects)
    verdicts: list[Verdict] = []
    notes: tuple[str, ...] = ()
    trace: Trace | None = None
    lines = 0
    if given.dumps or given.stacks:
        verdicts, notes, trace = judge_dumps(given.dumps, given.stacks, _to_stderr)
    if given.others:
        of_log, lines = _judge_output(given.others, needed=not verdicts)
        verdicts += without_messengers(verdicts, of_log)
        notes = (*notes, f"read {plural(lines, 'line')} of {plural(len(given.others), 'input')}")
    run = {"files": options.subjects, "lines": lines}
    fail_on, since = options.fail_on or Level.WARN, first_written(options.subjects)
    report = compose(verdicts, run, started, fail_on=fail_on, notes=notes, since=since)
    return with_sections(report, trace, options, _to_stderr)


def _judge_output(paths: list[str], *, needed: bool) -> tuple[list[Verdict], int]:
    """What the checks say of a job's output, and how many lines it has; UsageError where it has none, and there is
    nothing else to judge."""
    checks = registry.select(Source.LOG)
    log = read(streams(paths), root_cause.words(checks))
    if log.last is None and needed:
        raise UsageError("the input is empty")
    return (root_cause.examine(log, checks, _to_stderr) if log.last is not None else []), log.read


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def _facts(options: ExplainOptions) -> Report:
    """A report that holds nothing but the facts."""
    if any(format not in (Format.TERMINAL, Format.JSON) for format, _ in options.reports):
        raise UsageError("--facts supports --format terminal and json only")
    facts = read_facts(streams(options.subjects))
    if not facts.by_rank:
        raise UsageError("the input has no line from NCCL; run the job with NCCL_DEBUG=INFO")
    note = "no line names its rank; processes are numbered in order of appearance"
    notes = (note,) if facts.unnumbered else ()
    return compose([], {"facts": table(facts)}, time.monotonic(), notes=notes)


def _facts_text(report: Report, format: Format) -> str:
    rows = report.run["facts"]
    if format is Format.JSON:
        values = [{"ranks": list(row.ranks), "text": row.text} for row in rows]
        return json.dumps({"facts": values, "notes": list(report.notes)}, indent=2) + "\n"
    lines = [*evidence_lines(rows, width_of_stdout()), *(f"note:  {note}" for note in report.notes)]
    return "\n".join(lines) + "\n"
