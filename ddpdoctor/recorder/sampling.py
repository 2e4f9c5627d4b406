"""Which training steps are looked at, and how closely: the same ones on every rank, and ever fewer of them."""

from __future__ import annotations

from typing import NamedTuple


class Sampling(NamedTuple):
    """Of a run."""

    early: int
    """Training steps that are written down in full from the start."""
    frequent: int
    """Training steps until which eight of each doubling of their number are, after them four."""
    apart: int
    """Training steps that lie at least between two of these four."""
    digested: int
    """How many of these four have digests, random streams and layers, too."""

    def is_detailed(self, step: int) -> bool:
        """Whether a training step is written down in full."""
        return step < self.early or step % self._every(step) == 0

    def next_detailed(self, step: int) -> int:
        """The first training step from this one on that is."""
        return step if self.is_detailed(step) else step - step % self._every(step) + self._every(step)

    def is_digested(self, step: int) -> bool:
        """Whether it has digests, random streams and layers, too: first ones, then four in each doubling or fewer."""
        each = 4 if step < self.frequent else self.digested
        apart = (1 << step.bit_length()) // (2 * each)
        return self.is_detailed(step) and (step < self.early // 2 or step % apart == 0)

    def _every(self, step: int) -> int:
        """How many training steps lie between those that are written down in full, after the early ones."""
        bits = step.bit_length()
        return 1 << (bits - 4) if step < self.frequent else max(1 << (bits - 3), self.apart)


CHECKED = Sampling(early=32, frequent=256, apart=64, digested=4)
"""Of a run of minutes."""
WATCHED = Sampling(early=8, frequent=16, apart=64, digested=1)
"""Of a run of days, in which all that the recorder does is to take no more than a hundredth of the time."""
