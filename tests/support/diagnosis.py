"""A cause of a standstill, with the finding of the check that tells of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from ddpdoctor import registry
from ddpdoctor.blame.causes import Cause
from ddpdoctor.blame.hang_analysis import cause_of
from ddpdoctor.blame.hang_snapshot import Dump
from ddpdoctor.hang.flight.dumped_job import DumpedJob
from ddpdoctor.model import Confidence, Evidence, Finding, Level, Where
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recorded_job import cause_of_run


@dataclass(frozen=True)
class Diagnosis:
    cause: Cause
    finding: Finding

    @property
    def code(self) -> str:
        return self.finding.code

    @property
    def headline(self) -> str:
        return self.finding.headline

    @property
    def why(self) -> str:
        return self.finding.why

    @property
    def fix(self) -> str:
        return self.finding.fix

    @property
    def level(self) -> Level:
        return self.finding.level

    @property
    def confidence(self) -> Confidence:
        return self.finding.confidence

    @property
    def where(self) -> Where | None:
        return self.finding.where

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return self.finding.evidence

    @property
    def culprits(self) -> tuple[int, ...]:
        return self.cause.culprits

    @property
    def waiting(self) -> tuple[int, ...]:
        return self.cause.waiting


def told(cause: Cause | None) -> Diagnosis | None:
    return Diagnosis(cause, registry.by_cause(type(cause)).report(cause)) if cause else None


def diagnosis_of(trace: Trace) -> Diagnosis | None:
    """Why a run stands still."""
    return told(cause_of_run(trace))


def diagnosis_of_dumps(dumps: Mapping[int, Dump], world_size: int | None = None) -> Diagnosis | None:
    """What flight recorders tell alone."""
    return told(cause_of(DumpedJob(dumps, world_size)))
