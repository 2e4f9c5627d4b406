"""Where the time of each rank went, as figures."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from ddpdoctor.blame.hang_analysis import HangAnalysis
from ddpdoctor.blame.wording import doing
from ddpdoctor.check import NotMeasured
from ddpdoctor.figures import Row, Span, Strips, Tone, chosen, of_many, side_by_side
from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import Backward, Collective, Forward
from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.text import duration, signal_name
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.joint_training import training_steps
from ddpdoctor.trace.loop_exits import open_call
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.stragglers import own_time, paced_steps

LEGEND = (
    (Tone.WORK, "training: forward, backward, optimizer"),
    (Tone.DATA, "waits for data"),
    (Tone.WAIT, "waits for other ranks"),
    (Tone.COLLECTIVE, "collectives of the script"),
    (Tone.EVALUATION, "evaluation"),
    (Tone.FILES, "saves and loads"),
    (Tone.OTHER, "the script's other code"),
    (Tone.BAD, "the others wait for it"),
)
_WORDS = {tone: text.partition(":")[0] for tone, text in LEGEND}
MOST_SPANS = 3000
"""Of all rows together; of a longer run, its end is shown."""
_FAINT = 0.4
_TRAINING = (Tone.WORK, Tone.DATA, Tone.EVALUATION)
_LONG_START = 0.3
"""Of the time of a run, from which starting up is left out."""
_ENDING = 0.15
"""Of a timeline, for what ranks that stand still do since their last event, where that is not known longer."""


def timeline(trace: Trace, job: HangAnalysis | None, culprits: Sequence[int]) -> Strips | None:
    """What each rank did and when; None where nothing was recorded."""
    recordings = trace.recorded
    shown = chosen(sorted(recordings), culprits)
    waits = _waits(recordings)
    spans = {rank: list(_spans(recordings[rank], waits[rank])) for rank in shown}
    if not any(spans.values()):
        return None
    begins = sorted(span.begin for row in spans.values() for span in row)
    begin = max(_begin(spans.values()), begins[-MOST_SPANS:][0])
    if job is not None:
        _let_stand(job, trace, recordings, spans, culprits)
    end = max(span.end for row in spans.values() for span in row)
    rows = tuple(
        Row(
            _name(rank, recordings),
            tuple(_since(begin, spans[rank])),
            _ending(trace, rank),
            marked=rank in culprits,
        )
        for rank in shown
    )
    left = f"The {duration(begin - begins[0])} before are left out." if begin > begins[0] else ""
    rehearsed = "Times are those of the rehearsal on the CPU." if trace.rehearsal else ""
    notes = (rehearsed, left, of_many(shown, sorted(recordings)), _thinned(recordings))
    return _strips("What each rank did", rows, end - begin, " ".join(filter(None, notes)))


def _strips(title: str, rows: tuple[Row, ...], end: float, note: str) -> Strips:
    """Rows over seconds, with the legend that they need."""
    tones = {span.tone for row in rows for span in row.spans}
    legend = tuple((tone, text) for tone, text in LEGEND if tone in tones)
    return Strips(title, rows, end=end, unit="s", legend=legend, note=note)


def _let_stand(
    job: HangAnalysis,
    trace: Trace,
    recordings: Mapping[int, Recording],
    spans: Mapping[int, list[Span]],
    culprits: Sequence[int],
) -> None:
    """Let ranks that stand still do so to the end of the timeline."""
    ends = [recordings[rank].last + recordings[rank].clock for rank in spans]
    begins = (span.begin for row in spans.values() for span in row)
    seconds = trace.snapshot.seconds if trace.snapshot else 0.0
    end = max(ends) + max(seconds, _ENDING * (max(ends) - min(begins)))
    for rank, row in spans.items():
        if rank in job.ranks and not job.ranks[rank].left:
            row.append(_rank_state(job, recordings[rank], rank, row, end, culprits))


def _begin(spans: Iterable[Sequence[Span]]) -> float:
    """Where the timeline begins: with the first training step, where starting up took most of the time."""
    everything = [span for row in spans for span in row]
    first, last = min(span.begin for span in everything), max(span.end for span in everything)
    trained = (span.begin for span in everything if span.tone in _TRAINING and span.shade == 1.0)
    begin = min(trained, default=first)
    return begin if begin - first > _LONG_START * (last - first) else first


def step_parts(trace: Trace, culprits: Sequence[int]) -> Strips | None:
    """Where the time of a training step goes by rank, on average; None where too few were timed."""
    try:
        steps = paced_steps(trace)
    except NotMeasured:
        return None
    parts = _parts(steps)
    by_work = sorted(parts, key=lambda rank: parts[rank][Tone.WAIT])
    shown = chosen(sorted(steps), [*culprits, *by_work])
    whole = {rank: sum(by_tone.values()) for rank, by_tone in parts.items()}
    rows = tuple(
        Row(f"rank {rank}", _spans_of(parts[rank]), duration(whole[rank]), marked=rank in culprits)
        for rank in shown
    )
    note = f"Averages of {len(steps[shown[0]])} steps. {of_many(shown, sorted(steps))}".strip()
    return _strips("Where a training step goes", rows, max(whole.values()) or 1.0, note)


def _parts(steps: Mapping[int, Sequence[TrainingStep]]) -> dict[int, dict[Tone, float]]:
    """Seconds of a step by rank."""

    def mean(timed: Sequence[TrainingStep], *phases: str) -> float:
        return sum(own_time(step, phase) for step in timed for phase in phases) / len(timed)

    return {
        rank: {
            Tone.DATA: mean(timed, "data"),
            Tone.OTHER: mean(timed, "other"),
            Tone.WORK: mean(timed, "forward", "backward", "step"),
            Tone.COLLECTIVE: mean(timed, "collective"),
            Tone.WAIT: mean(timed, "waits"),
        }
        for rank, timed in steps.items()
    }


def _spans_of(parts: Mapping[Tone, float]) -> tuple[Span, ...]:
    return side_by_side(*((took, tone, f"{_WORDS[tone]}: {duration(took)}") for tone, took in parts.items()))


def _waits(recordings: Mapping[int, Recording]) -> dict[int, dict[int, float]]:
    """Seconds that each backward and collective took longer than on the fastest rank, by rank and id of the event."""
    waits: dict[int, dict[int, float]] = {rank: {} for rank in recordings}
    rows: list[dict[int, Backward | Collective]] = []
    for _, row in training_steps(recordings):
        backwards = {rank: step.backwards[-1] for rank, step in row.items() if step.backwards}
        rows.append(dict(backwards))
    calls: defaultdict[object, dict[int, Backward | Collective]] = defaultdict(dict)
    for rank, recording in recordings.items():
        for call in recording.collectives:
            if call.number is not None and call.ended:
                calls[call.operation, call.group, call.number][rank] = call
    for together in (*rows, *calls.values()):
        least = min((event.seconds for event in together.values()), default=0.0)
        for rank, event in together.items():
            if len(together) > 1:
                waits[rank][id(event)] = event.seconds - least
    return waits


def _spans(recording: Recording, waits: Mapping[int, float]) -> Iterator[Span]:
    """What a rank did; what lies inside something else comes after it."""
    begin, clock = next(iter(recording.groups), None), recording.clock
    if begin is not None and recording.exit is not None:
        end = recording.exit.time + clock
        yield Span(begin.time + clock, end, Tone.OTHER, "the script's other code", _FAINT)
    timed = sorted(_timed(recording), key=lambda pair: (pair[1].begin, -pair[1].end))
    for event, recorded in timed:
        span = replace(recorded, begin=recorded.begin + clock, end=recorded.end + clock)
        waited = waits.get(id(event), 0.0)
        if waited == 0 or waited < span.end - span.begin:
            yield replace(span, end=span.end - waited)
        if waited > 0:
            waiting = f"{span.about}, of which {duration(waited)} waiting for other ranks"
            yield Span(span.end - waited, span.end, Tone.WAIT, waiting)


def _timed(recording: Recording) -> Iterator[tuple[object, Span]]:
    """The events that took time, as the timeline shows them, on the clock of their host."""
    for step in recording.all_steps:
        kinds: dict[str, tuple[Forward | Backward | OptimizerStep, ...]] = {
            f"forward, step {step.index}": step.forwards,
            f"backward, step {step.index}": step.backwards,
            f"optimizer's step {step.index}": step.optimizer_steps,
        }
        begin = min((event.time for events in kinds.values() for event in events), default=0.0)
        waited = step.phases.get("data", 0.0)
        if waited > 0 and len(step.backwards) == 1:  # of several micro-batches only the sum is known
            about = f"waits for a batch, {duration(waited)}, step {step.index}"
            yield None, Span(begin - waited, begin, Tone.DATA, about)
        for name, events in kinds.items():
            yield from ((it, _span(it, Tone.WORK, f"{name}, {duration(it.seconds)}")) for it in events)
    for forward in recording.evaluation_forwards:
        yield forward, _span(forward, Tone.EVALUATION, "forward without autograd")
    for call in recording.collectives:
        if call.ended:
            yield call, _span(call, Tone.COLLECTIVE, f"{call.operation}, {duration(call.seconds)}")
        else:
            about = f"{call.operation} did not end{_at(call.at)}"
            yield call, Span(call.time, recording.last, Tone.WAIT, about)
    yield from _passes_and_files(recording)


def _passes_and_files(recording: Recording) -> Iterator[tuple[object, Span]]:
    for pass_ in recording.passes:
        end = recording.last if pass_.end is None else pass_.end
        over = f"pass over loader {pass_.loader}"
        if pass_.training:
            about = f"{over}, training, {pass_.drawn} batches{_at(pass_.at)}"
            yield pass_, Span(pass_.begin, end, Tone.WORK, about, _FAINT)
        elif pass_.evaluation:
            about = f"{over}, evaluation, {pass_.drawn} batches{_at(pass_.at)}"
            yield pass_, Span(pass_.begin, end, Tone.EVALUATION, about)
    for name, files in (("saves", recording.saves), ("loads", recording.loads)):
        for file in files:
            end = recording.last if file.end is None else file.end
            about = f"{name} a checkpoint, {duration(end - file.begin)}{_at(file.at)}"
            yield file, Span(file.begin, end, Tone.FILES, about)


def _span(event: Forward | Backward | OptimizerStep | Collective, tone: Tone, about: str) -> Span:
    return Span(event.time, event.time + event.seconds, tone, about + _at(event.at))


def _rank_state(
    job: HangAnalysis,
    recording: Recording,
    rank: int,
    spans: Sequence[Span],
    end: float,
    culprits: Sequence[int],
) -> Span:
    """What a rank does since the last that is known of it, or since it called what did not end."""
    state, call = job.ranks[rank], open_call(recording)
    known = max((span.end for span in spans if span.shade == 1.0), default=recording.last + recording.clock)
    last = call.time + recording.clock if call else known
    tone = Tone.BAD if rank in culprits else Tone.WAIT if state.waits else Tone.OTHER
    return Span(last, end, tone, f"rank {rank} {doing(state)}")


def _since(begin: float, spans: Sequence[Span]) -> Iterator[Span]:
    """The spans of a row, counted from the timeline's beginning."""
    for span in spans:
        if span.end > begin:
            yield replace(span, begin=max(span.begin - begin, 0.0), end=span.end - begin)


def _name(rank: int, recordings: Mapping[int, Recording]) -> str:
    several = len({recording.host for recording in recordings.values()}) > 1
    return f"rank {rank} on {recordings[rank].host}" if several else f"rank {rank}"


def _ending(trace: Trace, rank: int) -> str:
    """How a rank ended, where that is not just the end of its script."""
    traced: RankTrace | None = next((each for each in trace.ranks if each.rank == rank), None)
    raised = traced.recording.raised if traced and traced.recording else None
    if raised:
        return f"raised {raised.type.rpartition('.')[2]}"
    if traced and traced.killed_by:
        return signal_name(traced.killed_by)
    if traced and traced.failure:
        return "failed"
    status = traced.exit_code if traced and not traced.finished else None
    return f"exit status {status}" if status else ""


def _thinned(recordings: Mapping[int, Recording]) -> str:
    most = max(recordings.values(), key=lambda recording: recording.step_count)
    if most.step_count <= len(most.steps):
        return ""
    return (
        f"Of {most.step_count} training steps {len(most.steps)} were written down; "
        "in between, passes over a DataLoader are pale."
    )


def _at(where: Where | None) -> str:
    return f", {PurePath(where.file).name}:{where.line}" if where else ""
