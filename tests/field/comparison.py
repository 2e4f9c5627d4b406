"""What ddpdoctor said of a script, against what was read in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.field.manifest import Defect, Script

FAILED = "DD304"
"""An exception of the script: where nobody read it there, the rehearsal raised it."""

OF_SMALL_BATCHES = "DD220"
"""BatchNorm on few samples: the study makes batches small."""


@dataclass(frozen=True)
class Contact:
    """One script's report, judged."""

    script: Script
    status: int
    true: tuple[str, ...] = ()
    other_line: tuple[str, ...] = ()
    """The right code at a line that was not noted."""
    misleading: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    missed: tuple[Defect, ...] = ()
    """Defects that were read by eye, and no finding of any level names."""

    @property
    def silent(self) -> bool:
        """Whether there was rightly nothing above info."""
        findings = (*self.true, *self.other_line, *self.misleading, *self.false)
        return not findings and not self.missed and self.status != 2

    @property
    def failed(self) -> bool:
        """Whether the rehearsal broke a script that is sound."""
        return any(place.startswith(FAILED) for place in self.false)


def compare(script: Script, report: dict[str, Any]) -> Contact:
    """Compare a report with the manifest."""
    findings = [finding for finding in report["findings"] if finding["code"] != OF_SMALL_BATCHES]
    sorted_out: dict[str, list[str]] = {"true": [], "other_line": [], "misleading": [], "false": []}
    for finding in findings:
        if finding["level"] != "info":
            sorted_out[kind_of(script, finding)].append(place_of(finding))
    read = (defect for defect in script.defects if defect.by_eye)
    missed = tuple(defect for defect in read if not is_named(defect, findings, script))
    places = {kind: tuple(places) for kind, places in sorted_out.items()}
    return Contact(script, report["exit_status"], missed=missed, **places)


def kind_of(script: Script, finding: dict[str, Any]) -> str:
    """Which of Contact's kinds a finding is."""
    if any(is_at(finding, defect, script) for defect in script.misleading):
        return "misleading"
    same = [defect for defect in script.defects if finding["code"] in defect.codes]
    if any(is_at(finding, defect, script) for defect in same):
        return "true"
    return "other_line" if same else "false"


def is_named(defect: Defect, findings: Sequence[dict[str, Any]], script: Script) -> bool:
    """Whether a finding names it, also at a line that was not noted, if that is no other defect's."""
    elsewhere = [
        finding for finding in findings if not any(is_at(finding, other, script) for other in script.defects)
    ]
    return any(is_at(finding, defect, script) for finding in findings) or any(
        finding["code"] in defect.codes for finding in elsewhere
    )


def is_at(finding: dict[str, Any], defect: Defect, script: Script) -> bool:
    if finding["code"] not in defect.codes:
        return False
    if not defect.lines:
        return True
    where = finding["where"] or {"file": "", "line": None}
    file = defect.file or script.path
    return where["line"] in defect.lines and (f"/{file}").endswith(f"/{where['file']}".replace("/./", "/"))


def place_of(finding: dict[str, Any]) -> str:
    where = finding["where"]
    return f"{finding['code']} {where['file']}:{where['line']}" if where else finding["code"]


def totals(contacts: Sequence[Contact]) -> dict[str, int]:
    """The numbers of docs/field.md."""
    return {
        "scripts": len(contacts),
        "silent and rightly so": sum(contact.silent for contact in contacts),
        "findings true": sum(len(contact.true) for contact in contacts),
        "true, at another line": sum(len(contact.other_line) for contact in contacts),
        "misleading": sum(len(contact.misleading) for contact in contacts),
        "false": sum(len(contact.false) for contact in contacts),
        "defects read by eye": sum(defect.by_eye for c in contacts for defect in c.script.defects),
        "of these missed": sum(len(contact.missed) for contact in contacts),
        "failed rehearsals": sum(contact.failed for contact in contacts),
        "exit status 2": sum(contact.status == 2 for contact in contacts),
    }
