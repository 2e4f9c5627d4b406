"""The report as workflow commands, which GitHub Actions shows as annotations on the user's lines."""

from collections.abc import Iterator

from ddpdoctor.model import Finding, Level, Outcome, Report
from ddpdoctor.report.detail import fold_evidence, patch_outcome, verdict
from ddpdoctor.report.places import Places
from ddpdoctor.text import ranks_phrase

_COMMANDS = {Level.FAIL: "error", Level.WARN: "warning", Level.INFO: "notice"}


def render(report: Report) -> str:
    """One annotation for each finding and each check that broke, then the verdict."""
    names = {check.code: check.name for check in report.checks}
    lines = [_annotation(finding, names.get(finding.code, "")) for finding in report.findings]
    lines += [
        _command("error", {"title": f"{check.code} {check.name}"}, check.text)
        for check in report.checks
        if check.outcome is Outcome.ERROR
    ]
    return "\n".join([*lines, verdict(report)]) + "\n"


def _annotation(finding: Finding, name: str) -> str:
    properties = {}
    if finding.where:
        properties["file"] = Places().in_repository(finding.where.file)
        if finding.where.line is not None:
            properties["line"] = str(finding.where.line)
    properties["title"] = f"{finding.code} {name}".strip()
    return _command(_COMMANDS[finding.level], properties, "\n".join(_message(finding)))


def _message(finding: Finding) -> Iterator[str]:
    yield finding.headline
    for entry in fold_evidence(finding.evidence):
        yield f"{ranks_phrase(entry.ranks)}: {entry.text}" if entry.ranks else entry.text
    yield f"why: {finding.why}"
    yield f"fix: {finding.fix}"
    if finding.patch:
        yield f"patch: {finding.patch.title} ({patch_outcome(finding.patch)})"
        yield finding.patch.diff.rstrip("\n")
    if finding.unpatched:
        yield f"patch: none: {finding.unpatched}"
    yield f"more: {finding.more}"


def _command(name: str, properties: dict[str, str], message: str) -> str:
    shown = {key: _escape(value).replace(":", "%3A").replace(",", "%2C") for key, value in properties.items()}
    values = ",".join(f"{key}={value}" for key, value in shown.items())
    return f"::{name} {values}::{_escape(message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
