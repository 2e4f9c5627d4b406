"""A run as the sections of a page; and whether replicas stay equal, as figures: from which step on weights differ,
parameter by parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpdoctor.blame.figures import hang_section
from ddpdoctor.check import NotMeasured
from ddpdoctor.figures import Figure, Row, Section, Strips, Tone, cells
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data_figures import data_section
from ddpdoctor.trace.instances import by_value
from ddpdoctor.trace.recorded_job import cause_of_run, hang_analysis
from ddpdoctor.trace.sync import Group, Update, differing, replicas, updates
from ddpdoctor.trace.time_figures import step_parts, timeline


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
    yield from filter(None, (data_section(trace), weights_section(trace)))


MOST_PARAMETERS, MOST_UPDATES = 24, 60
_LEGEND = (
    (Tone.GOOD, "equal on all ranks"),
    (Tone.WAIT, "gradients differ"),
    (Tone.BAD, "weights differ"),
)


def weights_section(trace: Trace) -> Section | None:
    """Since when replicas differ; None where nothing was compared."""
    figures: list[Figure] = []
    sentences: list[str] = []
    try:
        for group in replicas(trace):
            compared = [update for update in updates(group) if None not in update.after.values()]
            if compared and (matrix := _matrix(group, compared)):
                figures.append(matrix)
            elif compared:
                sentences.append(_all_equal(group, compared))
    except NotMeasured:
        pass
    text = " ".join(sentences)
    return Section("Weights and gradients", text, tuple(figures)) if figures or text else None


def _all_equal(group: Group, compared: Sequence[Update]) -> str:
    keys = {key for update in compared for row in update.after.values() for key in row or ()}
    who, steps = ranks_phrase(group), len({update.index for update in compared})
    return (
        f"{plural(len(keys), 'parameter')} of {who} had equal bits on every rank after each of the "
        f"{plural(steps, 'training step')} that were compared."
    )


def _matrix(group: Group, compared: Sequence[Update]) -> Strips | None:
    """Parameters by steps; None where they stay equal."""
    shown = {update.index: update for update in _some(compared)}
    states = {index: _states(update) for index, update in shown.items()}
    apart = {key for tones in states.values() for key, tone in tones.items() if tone is not Tone.GOOD}
    if not apart:
        return None
    order = list(dict.fromkeys(key for tones in states.values() for key in tones))
    first = {
        key: next(n for n, tones in states.items() if tones.get(key, Tone.GOOD) is not Tone.GOOD)
        for key in apart
    }
    rows = [
        *sorted(apart, key=lambda key: (first[key], order.index(key))),
        *(k for k in order if k not in apart),
    ]

    def row(key: str) -> Row:
        spans = cells(list(shown), lambda index: _cell(key, states[index].get(key), shown[index]))
        return Row(key, spans, f"since step {first[key]}" if key in first else "")

    return Strips(
        f"Parameters of {ranks_phrase(group)} after each step",
        tuple(map(row, rows[:MOST_PARAMETERS])),
        end=float(len(shown)),
        columns=tuple(map(str, shown)),
        legend=_LEGEND,
        note=_note(compared, apart, rows),
    )


def _some(compared: Sequence[Update]) -> list[Update]:
    """Of many updates the first that differ are shown, and some of the others."""
    if len(compared) <= MOST_UPDATES:
        return list(compared)
    first = next((n for n, update in enumerate(compared) if differing(update.after)), 0)
    begin = max(0, first - MOST_UPDATES // 4)
    return list(compared[begin : begin + MOST_UPDATES])


def _states(update: Update) -> dict[str, Tone]:
    weights = {*differing(update.before), *differing(update.after)}
    gradients = set(update.differing_gradients)
    keys = next(iter(update.after.values())) or {}
    return {key: Tone.BAD if key in weights else Tone.WAIT if key in gradients else Tone.GOOD for key in keys}


def _cell(key: str, tone: Tone | None, update: Update) -> tuple[Tone, str] | None:
    if tone is None:
        return None
    apart = f"; {_camps(key, update)}" if tone is Tone.BAD else ""
    return tone, f"{key}, step {update.index}: {dict(_LEGEND)[tone]}{apart}"


def _camps(key: str, update: Update) -> str:
    """Which ranks hold equal values: ``ranks 0, 2 | rank 1``."""
    digests = {rank: (row or {}).get(key) for rank, row in update.after.items()}
    ranks = list(by_value(digests).values())
    return " | ".join(ranks_phrase(those) for those in ranks[:6]) + (" | ..." if len(ranks) > 6 else "")


def _note(compared: Sequence[Update], apart: set[str], rows: Sequence[str]) -> str:
    sentences = []
    first = next((update for update in compared if not apart.isdisjoint(differing(update.after))), None)
    if first is not None:
        key = next(key for key in differing(first.after) if key in apart)
        sentences.append(
            f"After step {first.index} these ranks hold different values of {key}: {_camps(key, first)}."
        )
    if len(rows) > MOST_PARAMETERS:
        sentences.append(
            f"{len(rows) - MOST_PARAMETERS} more parameters are not shown; {len(apart)} of {len(rows)} differ."
        )
    return " ".join(sentences)
