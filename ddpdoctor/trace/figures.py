"""A run as the sections of a page."""

from collections.abc import Iterator, Sequence

from ddpdoctor.blame.figures import hang_section
from ddpdoctor.figures import Section
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data_figures import data_section
from ddpdoctor.trace.recorded_job import cause_of_run, hang_analysis
from ddpdoctor.trace.time_figures import step_parts, timeline


def sections(trace: Trace, culprits: Sequence[int] = ()) -> Iterator[Section]:
    """What a page shows of a run, only of what it has; ``culprits`` are the ranks of its findings, where not all."""
    job = hang_analysis(trace)
    cause = cause_of_run(trace) if job else None
    blamed = {*(cause.culprits if cause else culprits)}
    culprits = () if blamed >= {rank.rank for rank in trace.ranks} else sorted(blamed)
    if job is not None:
        yield hang_section(job, cause)
    if strips := tuple(filter(None, (timeline(trace, job, culprits), step_parts(trace, culprits)))):
        yield Section("Time by rank", figures=strips)
    if data := data_section(trace):
        yield data
