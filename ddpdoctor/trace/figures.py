"""A run as the sections of a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpdoctor.blame.figures import hang_section
from ddpdoctor.figures import Section, Table
from ddpdoctor.recorder.events.process import Threads
from ddpdoctor.text import fold_ranks
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data_figures import data_section
from ddpdoctor.trace.instances import by_value
from ddpdoctor.trace.recorded_job import cause_of_run, hang_analysis
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.time_figures import step_parts, timeline
from ddpdoctor.trace.weight_figures import weights_section


def sections(trace: Trace, culprits: Sequence[int] = ()) -> Iterator[Section]:
    """What a page shows of a run, only of what it has.

    Args:
        culprits: the ranks that its findings are about, where those are not all.
    """
    job = hang_analysis(trace)
    cause = cause_of_run(trace) if job else None
    blamed = {*(cause.culprits if cause else culprits)}
    culprits = () if blamed >= {rank.rank for rank in trace.ranks} else sorted(blamed)
    if job is not None:
        yield hang_section(job, cause)
    strips = tuple(filter(None, (timeline(trace, job, culprits), step_parts(trace, culprits))))
    if strips:
        yield Section("Time by rank", figures=strips)
    yield from filter(None, (data_section(trace), weights_section(trace), _places(trace)))


def _places(trace: Trace) -> Section | None:
    """On which host and device each rank ran, equal ones once."""
    recordings = trace.recorded
    places = by_value({rank: _place(recording) for rank, recording in recordings.items()})
    if not places:
        return None
    rows = tuple((fold_ranks(ranks), *place) for place, ranks in places.items())
    header = ("ranks", "host", "device", "CPUs allowed", "threads of torch", "torch")
    return Section("Machine", figures=(Table("Where ranks ran", header, rows),))


def _place(recording: Recording) -> tuple[str, ...]:
    threads = next(iter(recording.events(Threads)), None)
    device = next((device for device in reversed(recording.devices) if device.valid), None)
    return (
        recording.host,
        f"cuda:{device.index}" if device else "CPU",
        str(threads.cpus or "?") if threads else "?",
        str(threads.threads) if threads else "?",
        recording.torch,
    )
