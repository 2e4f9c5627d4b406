"""What checks have in common that tell why a run stands still."""

from __future__ import annotations

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Finding, Judgement
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recorded_job import cause_of_run


class StandstillCheck(Check):
    """A check with :attr:`causes`: of a run that stands still it tells those alone."""

    def examine_run(self, trace: Trace) -> Judgement:
        """The finding where the cause is this check's, and what :meth:`examine_ended` says of any other run.

        Raises:
            NotMeasured: the run stands still for a cause that is another check's.
        """
        if findings := self.cause_of_standstill(trace):
            return findings
        if cause := cause_of_run(trace):
            raise NotMeasured(f"the job stands still ({registry.by_cause(type(cause)).code})")
        return self.examine_ended(trace)

    def cause_of_standstill(self, trace: Trace) -> list[Finding]:
        """The finding where a run stands still for a cause of this check's."""
        cause = cause_of_run(trace)
        return [self.report(cause)] if type(cause) in self.causes else []

    def examine_ended(self, trace: Trace) -> Judgement:
        """What this check says of a run that does not stand still."""
        raise NotImplementedError
