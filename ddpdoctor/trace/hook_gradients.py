"""What gradients became, beside what they should: the mean of what the ranks gave a hook, or the script's own call."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddpdoctor.model import Evidence
from ddpdoctor.recorder.events.updates import HookedGradient
from ddpdoctor.text import by_state
from ddpdoctor.trace.instances import by_key, on_each_rank
from ddpdoctor.trace.recording import Recording

_NEAR = 0.05
_STRAIGHT = 0.02
"""How far a result may be from a multiple of the mean, relative to it: a hook may compress."""


@dataclass(frozen=True)
class Multiple:
    """A gradient that is not the mean of the ranks' but a multiple of it."""

    first: HookedGradient
    times: float

    def given(self, group: Mapping[int, Recording], how: str) -> tuple[Evidence, ...]:
        """The same gradient on every rank, as it was before ranks exchanged it."""
        same = {
            rank: next(event for event in recording.events(HookedGradient) if event.at == self.first.at)
            for rank, recording in group.items()
        }
        return by_state(same, lambda it: f"{numbers(it.given)} of {it.key}{how}")


def multiples(group: Mapping[int, Recording], *, wrapped: bool) -> Iterator[Multiple]:
    """Each gradient that was seen on every rank, and how many times the mean was made of it.

    Left out are those of which it cannot be told: unequal results, losses that are no means of the rank's own, and
    gradients that were equal already, as after a hook that exchanges them during the backward.
    """
    gradients = on_each_rank(group, lambda recording: recording.events(HookedGradient))
    of_kind = ((rank, gradient) for rank, gradient in gradients if (gradient.wrapper is not None) is wrapped)
    for by_rank in by_key(of_kind, lambda gradient: gradient.at):
        row = list(by_rank.values())
        of_one_size = len({len(it.given) for it in row}) == 1  # stages of a pipeline may share a name
        differ = len(row) == len(group) and len({it.given for it in row}) > 1
        times = _times(row) if differ and of_one_size else None
        if times is not None and row[0].factor is not None:
            yield Multiple(row[0], times)


def _times(row: Sequence[HookedGradient]) -> float | None:
    """How many times the mean every rank got; None where ranks got something else."""
    columns = zip(*(gradient.given for gradient in row), strict=True)
    mean = [math.fsum(values) / len(row) for values in columns]
    times = [_multiple(gradient.got, mean) for gradient in row]
    known = [time for time in times if time is not None]
    if len(known) < len(times) or max(known) - min(known) > _STRAIGHT * abs(max(known)):
        return None
    return known[0]


def _multiple(values: Sequence[float], of: Sequence[float]) -> float | None:
    """The factor between two lists that point the same way."""
    size = math.fsum(value * value for value in of)
    if not size or not math.isfinite(size):
        return None
    times = math.fsum(a * b for a, b in zip(values, of, strict=True)) / size
    rest = math.fsum((a - times * b) ** 2 for a, b in zip(values, of, strict=True))
    straight = times and math.sqrt(rest) <= _STRAIGHT * abs(times) * math.sqrt(size)
    return times if straight else None


def all_are_multiples(multiples: Sequence[Multiple], times: float) -> bool:
    """Whether every gradient is that many times the mean, and nothing takes it back."""
    return all(_near(multiple.times, times) and not _is_compensated(multiple) for multiple in multiples)


def _is_compensated(multiple: Multiple) -> bool:
    """Whether the loss, or what is done to gradients before the update, takes the factor back, or may do so."""
    first = multiple.first
    later = _multiple(first.used, first.got) or 1.0
    accumulated = _near(first.factor or 1.0, 1 / max(1, first.backwards))
    plain = _near(first.factor or 1.0, 1) or (accumulated and not _near(multiple.times, first.backwards))
    return _near(later * multiple.times, 1) or not plain


def numbers(values: Sequence[float]) -> str:
    """The first of a gradient's values."""
    return ", ".join(f"{value:.4g}" for value in values[:3])


def _near(value: float, wanted: float) -> bool:
    """Whether it is that number, but for rounding."""
    return abs(value / wanted - 1) < _NEAR
