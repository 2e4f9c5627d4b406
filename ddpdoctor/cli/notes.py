"""What a report says of the run itself: how it was cut short, what it could not show, what would help."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

from ddpdoctor.job.private_view import caches
from ddpdoctor.judge import Verdict
from ddpdoctor.launch import Imagined
from ddpdoctor.text import listing, plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.not_reached import Unreached, not_reached
from ddpdoctor.trace.record import NUMBERS
from ddpdoctor.trace.written import phrases, relative

_MOST_FILES = 8
"""Files and folders that a note names."""

_WANTS_GPU = re.compile(
    r"no NVIDIA driver|not compiled with CUDA enabled|no CUDA GPUs are available|no GPUs found"
    r"|invalid device ordinal|No CUDA devices|no CUDA-capable device|built without NCCL"
    r"|ProcessGroupNCCL is only supported with GPUs|Distributed package doesn't have NCCL",
    re.IGNORECASE,
)
"""What torch, CUDA and NCCL say where a script asks for a GPU that is not there."""


def unfinished(trace: Trace, time_limit: float | None) -> str | None:
    """Why the run is no bill of health though nothing was found; None where it may be one."""
    if trace.broken:
        return None if trace.out_of_time and time_limit else trace.broken
    if trace.bundled or any(rank.recording and rank.recording.groups for rank in trace.ranks):
        return None
    if not any(rank.recording for rank in trace.ranks):
        return "no process imported torch under the recorder"
    return "not distributed: init_process_group was never called"


def facts(trace: Trace, working: Path) -> dict[str, Any]:
    """What ``run`` in the report tells of it, which worked in this directory."""
    if trace.bundled:
        return {}
    known: dict[str, Any] = {"rehearsal": trace.rehearsal, "shortened": None, "trained": _trained(trace)}
    if trace.shortened:
        known["shortened"] = {
            "batches_per_pass": trace.shortened.batches,
            "passes": trace.shortened.passes,
            "steps": trace.shortened.steps,
            "whole_passes": trace.shortened.whole,
        }
    if trace.written is not None:
        files = trace.written.files
        known["would_write"] = [{**asdict(file), "path": relative(file.path, working)} for file in files]
    groups = [event for rank in trace.ranks if rank.recording for event in rank.recording.groups]
    backend = next((event.backend for event in groups if event.backend), None)
    if backend:
        known |= {"backend": backend, "nproc": len(trace.ranks)}
    if trace.imagined:
        known["imagined"] = asdict(trace.imagined)
    if (missed := _missed(trace)) is not None:
        known["not_reached"] = [
            {
                "kind": it.kind,
                "what": it.what,
                "file": it.at.file,
                "line": it.at.line,
                "condition": it.condition,
            }
            for it in missed
        ]
    version = next((rank.recording.torch for rank in trace.ranks if rank.recording), None)
    return {**known, "torch": version} if version else known


def _missed(trace: Trace) -> list[Unreached] | None:
    """The lines to which no rank of a run came that ended by itself; None where that is not known."""
    return None if trace.broken or trace.before else not_reached(trace.recorded)


def _trained(trace: Trace) -> dict[str, int] | None:
    """The most training steps of a rank, and in how many passes over its DataLoader; several loaders have no epochs."""
    recordings = [rank.recording for rank in trace.ranks if rank.recording and rank.recording.step_count]
    if not recordings:
        return None
    longest = max(recordings, key=lambda recording: recording.step_count)
    passes = longest.training_passes
    one_loader = len({pass_.loader for pass_ in passes}) == 1
    return {"steps": longest.step_count, "epochs": len(passes) if one_loader else 0}


def notes(trace: Trace, verdicts: Iterable[Verdict], time_limit: float | None, working: Path) -> list[str]:
    """Sentences about the run."""
    if trace.bundled:
        return []
    return [
        *_on_jobs(trace),
        *_on_length(trace, verdicts),
        *_on_lines(trace),
        *_on_time(trace, time_limit),
        *_on_rehearsal(trace),
        *_on_restarts(trace),
        *_on_recorder(trace),
        *_on_files(trace, working),
        *_on_missing_indices(trace),
    ]


def _on_files(trace: Trace, working: Path) -> Iterator[str]:
    """What the run would have written, where that is undone."""
    if trace.written is None:
        return
    if trace.written.why_not:
        why = trace.written.why_not
        yield (
            f"no private view of the file system ({why}): what Python code wrote is undone, not what programs and "
            "libraries in other languages wrote"
        )
    for places in filter(None, (trace.written.uncovered, trace.written.outside)):
        is_place = places is trace.written.uncovered
        what = "does not cover" if is_place else "does not reach processes that another program started on"
        yield (
            f"the private view of the file system {what} {_first(places)}: there, what Python code wrote is undone, "
            "not what programs and libraries in other languages wrote"
        )
    if missing := _on_unknown_hosts(trace):
        yield f"no record tells where {ranks_phrase(missing)} ran: what was written on other hosts is not undone"
    if left := [relative(path, working) for path in trace.written.left]:
        yield f"not undone, since no Python code did it: {_first(left)}"
    if trace.written.lost:
        yield f"not undone: {_first(trace.written.lost)}"
    made = {file.path for file in trace.written.files if not file.existed}
    kept = [str(place) for place in caches()]
    loaded = {load.path for recording in trace.recorded.values() for load in recording.loads}
    if earlier := sorted(
        relative(path, working)
        for path in loaded - made
        if Path(path).is_file() and not any(Path(path).is_relative_to(place) for place in kept)
    ):
        yield f"loaded what was there before the run, as the script would: {listing(earlier)}"
    downloads = [file for file in trace.written.files if file.downloaded]
    if downloads:
        yield f"downloaded, and kept: {_first(phrases(downloads, working))}"
    if told := phrases((file for file in trace.written.files if not file.downloaded), working):
        yield f"would write: {_first(told)}; undone, unless --keep-files is given"


def _on_unknown_hosts(trace: Trace) -> set[int]:
    """The ranks of which no record came here, but for those that a launcher counts among the others of a host."""
    on_hosts: dict[str, int] = {}
    for recording in trace.recorded.values():
        here = int(recording.environ.get("LOCAL_WORLD_SIZE") or 1)
        on_hosts[recording.host] = max(on_hosts.get(recording.host, 0), here)
    known = max(sum(on_hosts.values()), len(trace.recorded))
    ran = {*(trace.imagined.ranks if trace.imagined else range(trace.world_size or 0))}
    return ran - trace.recorded.keys() if known < len(ran) else set()


def _first(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MOST_FILES} more" if len(names) > _MOST_FILES else ""
    return f"{', '.join(names[:_MOST_FILES])}{more}"


def _on_jobs(trace: Trace) -> Iterator[str]:
    if trace.before:
        jobs = [f"{_script(job)} on {plural(len(job.ranks), 'rank')}" for job in (*trace.before, trace)]
        yield f"the launch line ran {len(jobs)} jobs one after the other, and each was judged: {listing(jobs)}"


def _script(job: Trace) -> str:
    scripts = (PurePath(recording.script).name for recording in job.recorded.values())
    return next(scripts, "a script")


def _on_length(trace: Trace, verdicts: Iterable[Verdict]) -> Iterator[str]:
    short = next(filter(None, (job.shortened for job in (trace, *trace.before))), None)
    if short is None:
        return
    parts = []
    if short.passes:
        fewest = "" if short.fewest is None else f"{short.fewest} to "
        batches = f"{fewest}{plural(short.batches, 'batch')}"
        whole = f" ({short.whole} more were whole)" if short.whole else ""
        parts.append(f"{plural(short.passes, 'pass')} over DataLoaders to {batches}{whole}")
    if short.steps is not None:
        parts.append(f"the script to {plural(short.steps, 'training step')}")
    undecided = sorted(verdict.code for verdict in verdicts if verdict.cut_short)
    left = f"; not decided because of it: {', '.join(undecided)}" if undecided else ""
    yield f"cut short: {' and '.join(parts)}{left}; --full runs everything"


def _on_lines(trace: Trace) -> Iterator[str]:
    counted = Counter(it.kind for it in _missed(trace) or ())
    if counted:
        kinds = [plural(count, kind) for kind, count in counted.items()]
        yield f"no rank came to {listing(kinds)} of the script; --verbose lists them"


def _on_time(trace: Trace, time_limit: float | None) -> Iterator[str]:
    if trace.out_of_time and time_limit:
        yield f"the script was ended after {trace.seconds:.0f} s, and checked up to that point"


def _on_rehearsal(trace: Trace) -> Iterator[str]:
    if trace.imagined is not None:
        yield from _on_imagined(trace.imagined)
    if trace.rehearsal:
        what = "speed, GPU memory, NCCL and the numerics of CUDA kernels"
        yield f"rehearsed on the CPU: {what} were not checked"
    elif _WANTS_GPU.search(_what_ended(trace)):
        yield "the script requires a GPU, and this machine has none: ddpdoctor check --rehearse runs it on the CPU"


def _on_imagined(imagined: Imagined) -> Iterator[str]:
    real, hosts = imagined.ranks, -(-imagined.world_size // imagined.nproc)
    others = plural(imagined.world_size - len(real), "rank")
    on_each = f"on {plural(hosts, 'simulated host')} of {plural(imagined.nproc, 'rank')}"
    yield (
        f"rehearsed as {imagined.world_size} ranks {on_each}: {ranks_phrase(real)} were real, the other {others} "
        "imaginary, as if they held what the real ones hold"
    )
    yield (
        "a rehearsal at scale does not show what only an imaginary rank does or holds (its samples, its files, its "
        "messages, its failure), what a race between many hosts does, nor time, memory and traffic at that size"
    )


def _what_ended(trace: Trace) -> str:
    failures = (rank.failure for rank in trace.ranks if rank.failure)
    output: Sequence[str] = [line for rank in trace.ranks if rank.broke for line in rank.output]
    return "\n".join([*(f"{failure.type}: {failure.message}" for failure in failures), *output])


def _on_restarts(trace: Trace) -> Iterator[str]:
    if trace.restarts:
        times = plural(trace.restarts, "time")
        yield f"the launcher restarted the ranks {times} after a failure; the last attempt is judged"


def _on_recorder(trace: Trace) -> Iterator[str]:
    """Faults of the recorder and limits of a rehearsal, each once whatever number of ranks has it."""
    recorded = {(it.topic, it.text) for rank in trace.ranks if rank.recording for it in rank.recording.notes}
    for topic, text in sorted(recorded):
        last = text.rstrip().rpartition("\n")[2]  # of a traceback; the record has all of it
        unseen = f"the recorder did not see everything: {topic}: {last}"
        yield f"rehearsal: {text}" if topic == "rehearsal" else unseen


def _on_missing_indices(trace: Trace) -> Iterator[str]:
    ranks = [rank for rank, recording in trace.recorded.items() if recording.lacks_indices]
    if ranks:
        yield (
            f"the sample indices of {ranks_phrase(ranks)} are missing beside their records (*{NUMBERS}); what "
            "depends on them was not checked for these ranks"
        )
