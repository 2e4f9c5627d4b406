"""The base class of checks that report why a run hangs."""

from __future__ import annotations

from ddpdoctor import registry
from ddpdoctor.check import Check, NotMeasured
from ddpdoctor.model import Finding, Judgement
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recorded_job import cause_of_run


class HangCheck(Check):
    """A check with :attr:`causes`: where a run hangs, it reports these causes only."""

    def examine_run(self, trace: Trace) -> Judgement:
        """The finding where a run hangs for a cause of this check; :meth:`examine_ended` judges a run that ended.

        Raises:
            NotMeasured: the run hangs for a cause of another check.
        """
        if findings := self.cause_of_hang(trace):
            return findings
        if cause := cause_of_run(trace):
            raise NotMeasured(f"the job hangs ({registry.by_cause(type(cause)).code})")
        return self.examine_ended(trace)

    def cause_of_hang(self, trace: Trace) -> list[Finding]:
        """The finding where a run hangs for a cause of this check."""
        cause = cause_of_run(trace)
        return [self.report(cause)] if type(cause) in self.causes else []

    def examine_ended(self, trace: Trace) -> Judgement:
        """The judgement on a run that does not hang."""
        raise NotImplementedError
