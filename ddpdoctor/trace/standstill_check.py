"""What checks have in common that tell why a run stands still."""

from __future__ import annotations

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Judgement
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recorded_job import cause_of_run


class StandstillCheck(Check):
    """A check with :attr:`causes`: of a run that stands still it tells those alone."""

    def examine_run(self, trace: Trace) -> Judgement:
        """The finding where the cause is this check's, and what :meth:`examine_ended` says of any other run.

        Raises:
            NotMeasured: the run stands still for a cause that is another check's.
        """
        cause = cause_of_run(trace)
        if cause is None:
            return self.examine_ended(trace)
        reporting = registry.by_cause(type(cause))
        if reporting.code != self.code:
            raise NotMeasured(f"the job stands still ({reporting.code})")
        return [self.report(cause)]

    def examine_ended(self, trace: Trace) -> Judgement:
        """What this check says of a run that does not stand still."""
        raise NotImplementedError
