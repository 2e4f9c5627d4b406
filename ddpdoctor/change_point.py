"""Whether a series of measurements changed for good, from where on, and how sure that is.

That it changed is said by Pettitt's test, which is of ranks: A. N. Pettitt, "A non-parametric approach to the
change-point problem", Applied Statistics 28 (1979), 126-135. Where it changed is the better fit of a jump and of a line
that begins to rise or fall there (segmented regression), and the interval that of fits to residuals drawn anew: D. V.
Hinkley and E. Schechtman, "Conditional bootstrap methods in the mean-shift model", Biometrika 74 (1987), 85-93.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median, quantiles

FEWEST = 24
"""Values of a series."""
_CHANCE = 1e-3
"""Of such a course without a change, at most."""
_APART = 0.95
"""Of all pairs of a value before and one after, in which the later one lies on the same side."""
_DRAWS = 200
_OUTLIERS = 20
"""One value in so many is an outlier at either end, which draws no line to itself."""
_LEAST_SIDE = 3


@dataclass(frozen=True)
class Change:
    """A change that stayed."""

    at: int
    """The first value that is other."""
    interval: tuple[int, int]
    """That holds it with 95 % confidence."""
    before: float
    """The median."""
    after: float
    """The median of the last half of what follows."""


def change_of(values: Sequence[float]) -> Change | None:
    """How a series changed; None where it did not, or it cannot be told from chance."""
    if len(values) < FEWEST or not _is_unlikely(values):
        return None
    clipped = _without_outliers(values)
    at, fitted = _fit(clipped)
    before, after = values[:at], values[at:]
    lasting = after[len(after) // 2 :]
    if not _lie_apart(before, lasting):
        return None
    draw, drawn = random.Random(0), []
    apart = [value - fit for value, fit in zip(clipped, fitted, strict=True)]
    for _ in range(_DRAWS):
        own = (draw.choices(apart[:at], k=at), draw.choices(apart[at:], k=len(apart) - at))
        again = [fit + noise for fit, noise in zip(fitted, (*own[0], *own[1]), strict=True)]
        drawn.append(_fit(again)[0])
    drawn.sort()
    low, high = drawn[_DRAWS // 40], drawn[-1 - _DRAWS // 40]
    return Change(at, (min(low, at), max(high, at)), median(before), median(lasting))


def _is_unlikely(values: Sequence[float]) -> bool:
    """Pettitt's test."""
    count, ordered = len(values), sorted(values)
    ranks = [(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values]
    statistic = max(
        abs(2 * total - number * (count + 1)) for number, total in enumerate(accumulate(ranks), 1)
    )
    return 2 * math.exp(-6 * statistic**2 / (count**3 + count**2)) < _CHANCE


def _lie_apart(before: Sequence[float], after: Sequence[float]) -> bool:
    late = sorted(after)
    above = sum(len(late) - bisect_right(late, early) for early in before)
    below = sum(bisect_left(late, early) for early in before)
    return max(above, below) >= _APART * len(before) * len(late)


def _without_outliers(values: Sequence[float]) -> list[float]:
    *_, least = quantiles([-value for value in values], n=_OUTLIERS)
    *_, most = quantiles(values, n=_OUTLIERS)
    return [min(max(value, -least), most) for value in values]


def _fit(values: Sequence[float]) -> tuple[int, list[float]]:
    """Where the best of all jumps and bends is, and the values that it gives."""
    count = len(values)
    sums = [0.0, *accumulate(values)]
    weighted = [0.0, *accumulate(number * value for number, value in enumerate(values))]
    best: tuple[float, int, float, float, float] = (-math.inf, 0, 0.0, 0.0, 0.0)
    for at in range(_LEAST_SIDE, count - _LEAST_SIDE + 1):
        late = count - at
        early_mean, late_mean = sums[at] / at, (sums[-1] - sums[at]) / late
        explained = sums[at] * early_mean + (sums[-1] - sums[at]) * late_mean
        best = max(best, (explained, at, early_mean, late_mean, 0.0))
        # A bend is level + slope * (number - at + 1) from there on.
        first, second = late * (late + 1) / 2, late * (late + 1) * (2 * late + 1) / 6
        product = weighted[-1] - weighted[at] - (at - 1) * (sums[-1] - sums[at])
        slope = (product - first * sums[-1] / count) / (second - first * first / count)
        level = (sums[-1] - slope * first) / count
        best = max(best, (level * sums[-1] + slope * product, at, level, level, slope))
    _, at, level, then, slope = best
    return at, [level] * at + [then + slope * number for number in range(1, count - at + 1)]
