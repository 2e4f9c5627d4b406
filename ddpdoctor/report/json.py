"""The report for programs; ``schema.json`` beside this file describes it. Names are added, never changed."""

import json
from enum import Enum
from typing import Any

from ddpdoctor.model import Change, CheckResult, Evidence, Finding, Patch, Report, Subject, Where

SCHEMA_VERSION = 1
_NAMES: dict[type, str] = {
    CheckResult: "code name family outcome text reason seconds evidence",
    Finding: "code level headline why fix ranks where evidence confidence more about patch? unpatched?",
    Patch: "title diff verified outcome changes",
    Change: "file line removed text",
    Evidence: "ranks text where?",
    Where: "file line function",
    Subject: "kind name",
}
"""What is written of each class, in this order; with a question mark, only what is not None."""


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
        "checks": _plain(report.checks),
        "findings": _plain(report.findings),
        "run": report.run,
        "notes": list(report.notes),
    }


def _plain(value: Any) -> Any:
    if names := _NAMES.get(type(value)):
        fields = {name: getattr(value, name.rstrip("?")) for name in names.split()}
        told = {name: it for name, it in fields.items() if it is not None or not name.endswith("?")}
        return {name.rstrip("?"): _plain(field) for name, field in told.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    return round(value, 3) if isinstance(value, float) else value
