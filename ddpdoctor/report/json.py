"""The report for programs; ``schema.json`` beside this file describes it. Names are added, never changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ddpdoctor.model import CheckResult, Evidence, Finding, Report, Where

SCHEMA_VERSION = 1


def render(report: Report) -> str:
    """The report as one JSON object, in ASCII so that no locale can spoil it."""
    return json.dumps(to_values(report), indent=2) + "\n"


def to_values(report: Report) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "schema": SCHEMA_VERSION,
        "tool": "ddpdoctor",
        "version": report.version,
        "command": list(report.command),
        "exit_status": report.exit_status,
        "seconds": round(report.seconds, 3),
        "checks": [_check(check) for check in report.checks],
        "findings": [_finding(finding) for finding in report.findings],
        "run": report.run,
        "notes": list(report.notes),
    }


def _check(check: CheckResult) -> dict[str, Any]:
    return {
        "code": check.code,
        "name": check.name,
        "family": check.family.value,
        "outcome": check.outcome.value,
        "text": check.text,
        "reason": check.reason,
        "seconds": round(check.seconds, 3),
        "evidence": _evidence(check.evidence),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "level": finding.level.value,
        "headline": finding.headline,
        "why": finding.why,
        "fix": finding.fix,
        "ranks": list(finding.ranks),
        "where": _where(finding.where),
        "evidence": _evidence(finding.evidence),
        "confidence": finding.confidence.value,
        "more": finding.more,
        "about": [{"kind": subject.kind.value, "name": subject.name} for subject in finding.about],
    }


def _where(where: Where | None) -> dict[str, Any] | None:
    return {"file": where.file, "line": where.line, "function": where.function} if where else None


def _evidence(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [{"ranks": list(entry.ranks), "text": entry.text} for entry in evidence]
