"""The report as SARIF 2.1.0: the checks are its rules, with their pages as help.

Code scanning refuses a file with a result that has no place in the repository, so each has one.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote as percent_encode

from ddpdoctor import registry
from ddpdoctor.model import Finding, Level, Outcome, Report
from ddpdoctor.report.json import to_values
from ddpdoctor.report.pages import markdown_sections, page_address, page_of
from ddpdoctor.report.places import Places
from ddpdoctor.text import LONGEST_COMMAND, quote_command

_LEVELS = {Level.FAIL: "error", Level.WARN: "warning", Level.INFO: "note"}
_MOST_RESULTS = 5000
"""Code scanning shows no more of a run."""
_CONFIGURATION = "pyproject.toml"
_WITHOUT_A_LINE = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 2}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(report: Report) -> str:
    """The report as a SARIF log with one run."""
    rules = _rules(report)
    codes, places = list(rules), _Places(report)
    findings = to_values(report)["findings"][:_MOST_RESULTS]
    run = {
        "tool": {
            "driver": {
                "name": "ddpdoctor",
                "semanticVersion": report.version,
                "rules": list(rules.values()),
            }
        },
        "invocations": [_invocation(report, codes)],
        "results": [
            _result(finding, values, codes, places)
            for finding, values in zip(report.findings, findings, strict=False)
        ],
        "columnKind": "unicodeCodePoints",
        "properties": {"run": report.run, "notes": list(report.notes)},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rules(report: Report) -> dict[str, dict[str, Any]]:
    """A rule for each check of the report, and for each code that a finding has besides."""
    rules = {line.code: _rule(line.code, line.name, [line.family.value]) for line in report.checks}
    others = (finding.code for finding in report.findings if finding.code not in rules)
    return rules | {code: _rule(code, code, []) for code in others}


def _rule(code: str, name: str, tags: list[str]) -> dict[str, Any]:
    check = registry.by_code(code)
    summary = {"text": page_of(check).summary if check else name}
    page = {"text": check.page(), "markdown": markdown_sections(check, level=2)} if check else summary
    return {
        "id": code,
        "name": name,
        "shortDescription": summary,
        "fullDescription": summary,
        "help": page,
        **({"helpUri": address} if check and (address := page_address(code)) else {}),
        "properties": {"tags": tags},
    }


def _invocation(report: Report, codes: list[str]) -> dict[str, Any]:
    return {
        "commandLine": quote_command(("ddpdoctor", *report.command), LONGEST_COMMAND),
        "exitCode": report.exit_status,
        "executionSuccessful": report.exit_status != 2,
        "toolExecutionNotifications": [
            {
                "level": "error" if check.outcome is Outcome.ERROR else "note",
                "message": {"text": check.text},
                "associatedRule": {"id": check.code, "index": codes.index(check.code)},
            }
            for check in report.checks
            if check.outcome in (Outcome.ERROR, Outcome.SKIP)
        ],
    }


def _result(finding: Finding, values: dict[str, Any], codes: list[str], places: _Places) -> dict[str, Any]:
    return {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": _LEVELS[finding.level],
        "message": {"text": "\n\n".join(places.message(finding))},
        "locations": [places.location(finding)],
        "partialFingerprints": {"ddpdoctor/v1": places.fingerprint(finding)},
        "properties": {
            name: values[name] for name in ("headline", "ranks", "evidence", "confidence", "more", "about")
        },
    }


class _Places:
    """Where findings are shown, in files below the top of the repository."""

    def __init__(self, report: Report) -> None:
        self._script = next(filter(None, map(_in_repository, _files_of_job(report))), _CONFIGURATION)
        self._seen: Counter[str] = Counter()

    def location(self, finding: Finding) -> dict[str, Any]:
        """The finding's own line; of one that is about no line of the repository, the first line of the script."""
        where, file = finding.where, _file_of(finding)
        region = _region(finding) if file else _WITHOUT_A_LINE
        uri = percent_encode(file or self._script)
        location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
        if where and where.function and file:
            location["logicalLocations"] = [{"name": where.function, "kind": "function"}]
        return location

    def message(self, finding: Finding) -> Iterator[str]:
        """All that a person reads, with a line that lies outside the repository."""
        yield finding.headline or finding.code
        if finding.where and not _file_of(finding):
            yield f"at {Places().place(finding.where)}"
        yield from filter(None, (finding.why, f"fix: {finding.fix}" if finding.fix else ""))

    def fingerprint(self, finding: Finding) -> str:
        """What stays the same when lines are inserted above, and differs for each result of a run."""
        where = finding.where
        place = (where.file, where.function) if where else ()
        known = repr((finding.code, place, sorted((one.kind.value, one.name) for one in finding.about)))
        digest = hashlib.sha256(known.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        self._seen[digest] += 1
        return f"{digest}:{self._seen[digest]}"


def _files_of_job(report: Report) -> Iterator[str]:
    """The Python files that the words of the job name."""
    try:
        words = shlex.split(str(report.run.get("script") or ""))
    except ValueError:  # it was shortened
        return
    for before, word in zip(["", *words], words, strict=False):
        if word.endswith(".py"):
            yield word
        elif before == "-m" and not word.startswith("torch."):
            yield f"{word.replace('.', '/')}.py"


def _region(finding: Finding) -> dict[str, int]:
    """The expression that the finding is about, or its line, as far as its file still shows them."""
    line = max(1, (finding.where and finding.where.line) or 1)
    first, end = next(_columns(finding), (0, 0))
    last = max(end, first + 1)
    return {"startLine": line, "startColumn": first + 1, "endLine": line, "endColumn": last + 1}


def _columns(finding: Finding) -> Iterator[tuple[int, int]]:
    for excerpt in finding.excerpts:
        for mark in excerpt.marks:
            text = excerpt.lines[mark.line - excerpt.first]
            if mark.main:
                yield mark.columns or (len(text) - len(text.lstrip()), len(text))


def _file_of(finding: Finding) -> str | None:
    """The finding's own file, relative to the top of the repository; None where it lies elsewhere."""
    return _in_repository(finding.where.file) if finding.where else None


def _in_repository(file: str) -> str | None:
    path = PurePath(Places().in_repository(file))
    return None if path.is_absolute() or ".." in path.parts or not path.name else path.as_posix()
