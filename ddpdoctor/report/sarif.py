"""The report as SARIF 2.1.0: the checks are its rules, with their pages as help."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any
from urllib.parse import quote as percent_encode

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.model import Change, CheckResult, Finding, Level, Outcome, Patch, Report, Where
from ddpdoctor.report.detail import patch_outcome
from ddpdoctor.report.json import to_values
from ddpdoctor.report.pages import markdown_sections, page_of
from ddpdoctor.report.places import Places
from ddpdoctor.text import LONGEST_COMMAND, quote_command

_LEVELS = {Level.FAIL: "error", Level.WARN: "warning", Level.INFO: "note"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(report: Report) -> str:
    """The report as a SARIF log with one run."""
    codes = [check.code for check in report.checks]
    run = {
        "tool": {
            "driver": {
                "name": "ddpdoctor",
                "semanticVersion": report.version,
                "rules": [_rule(check) for check in report.checks],
            }
        },
        "invocations": [_invocation(report, codes)],
        "results": [
            _result(finding, values, codes)
            for finding, values in zip(report.findings, to_values(report)["findings"], strict=True)
        ],
        "columnKind": "unicodeCodePoints",
        "properties": {"run": report.run, "notes": list(report.notes)},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(line: CheckResult) -> dict[str, Any]:
    rule = {"id": line.code, "name": line.name, "properties": {"tags": [line.family.value]}}
    check = registry.by_code(line.code)
    return {**rule, **_documentation(check)} if check else rule


def _documentation(check: Check) -> dict[str, Any]:
    summary = {"text": page_of(check).summary}
    page = {"text": check.page(), "markdown": markdown_sections(check, level=2)}
    return {"shortDescription": summary, "fullDescription": summary, "help": page}


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


def _result(finding: Finding, values: dict[str, Any], codes: list[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": _LEVELS[finding.level],
        "message": {"text": f"{finding.headline}\n\n{finding.why}\n\nfix: {finding.fix}"},
        "properties": {
            name: values[name] for name in ("headline", "ranks", "evidence", "confidence", "more", "about")
        },
    }
    if finding.code in codes:
        result["ruleIndex"] = codes.index(finding.code)
    if finding.where:
        result["locations"] = [_location(finding.where)]
    if finding.patch and finding.patch.verified and finding.patch.changes:
        result["fixes"] = [_fix(finding.patch)]
    return result


def _fix(patch: Patch) -> dict[str, Any]:
    files = dict.fromkeys(change.file for change in patch.changes)
    return {
        "description": {"text": f"{patch.title} ({patch_outcome(patch)})"},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": _uri(file)},
                "replacements": [_replacement(change) for change in patch.changes if change.file == file],
            }
            for file in files
        ],
    }


def _replacement(change: Change) -> dict[str, Any]:
    end = change.line + change.removed
    region = {"startLine": change.line, "startColumn": 1, "endLine": end, "endColumn": 1}
    return {"deletedRegion": region, "insertedContent": {"text": change.text}}


def _location(where: Where) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(where.file)}}
    if where.line is not None:
        physical["region"] = {"startLine": where.line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if where.function:
        location["logicalLocations"] = [{"name": where.function, "kind": "function"}]
    return location


def _uri(file: str) -> str:
    path = PurePath(Places().in_repository(file))
    return path.as_uri() if path.is_absolute() else percent_encode(path.as_posix())
