"""What is known of a DataLoader and of one pass over it while the script runs."""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from typing import Any

from .events.data import LoaderPass
from .loops import HAND
from .where import Where


class Loader:
    def __init__(self, made: int, at: Where | None) -> None:
        self.made = made
        self.at = at
        self.index: int | None = None
        """In order of first iteration."""
        self.passes = 0
        self.batch_size: int | None = None
        self.cut = 0
        """Passes that were cut short."""
        self.workers: list[int | None] = []
        """Their pids, of the last that were started."""
        self.endless = False
        """Whether asking its sampler in advance led nowhere."""
        self.places: array[int] | None = None
        """Where its samples lie in the innermost dataset; None where they lie where they are."""


@dataclass
class Length:
    """What the ranks have decided on the length of a pass."""

    began: float = 0.0
    asks_at: int = 0
    """After how many batches they decide next whether it is long enough; 0 before they first do."""
    over: int | None = None
    """Batches that it had when they decided that it is."""
    over_steps: int = 0
    """Training steps of the whole run at that time."""
    reads_ahead: bool = False
    """Whether its second batch was asked for before anything was done with the first."""
    own: str = ""
    """What the ranks call it where no collective is issued in it."""


class OpenPass:
    """A pass over a DataLoader that the script is making."""

    given_at, given_backwards = 0.0, 0
    """When it gave its last batch, and how many backwards there were."""
    told = -1
    """Batches that were taken when that was last told in the background; -1 before anything was told of it."""
    tested = False
    """Whether a forward without autograd, and no backward, came between that and a batch of another pass."""

    def __init__(self, loader: Loader, at: Where | None) -> None:
        self.loader = loader
        self.at = at
        self.number = -1
        """Of its loader; -1 until it draws."""
        self.id = -1
        self.pid = os.getpid()
        """A forked child has its parent's, and its record knows nothing of them."""
        self.event: LoaderPass | None = None
        """What was written down of it; None until it draws."""
        self.indices: array[int] | None = None
        """The foreseen order, or where it could not be foreseen what was drawn up to now."""
        self.batches: int | None = None
        """Of the whole pass, as far as it can be told."""
        self.foreseen = False
        self.position = 0
        self.asked = 0
        """How often indices were drawn for it, ahead of the loop."""
        self.looked_at = 0
        """Batches at its beginning whose content and indices are looked at."""
        self.collectives = False
        """Whether drawing waited for other ranks."""
        self.drawn_to_end = False
        """Whether its sampler drew the rest after it was cut."""
        self.settled = False
        """Whether nothing more is to be learnt from the indices that are drawn."""
        self.taken = 0
        """Batches that the loop took."""
        self.rows = 0
        """Samples that were looked at one by one."""
        self.wait = 0.0
        self.driver = HAND
        self.steps = self.backwards = 0
        """Training steps and backwards of the whole run when it began."""
        self.trained = 0
        """Training steps between its batches: what another pass is drawn for is none of its own."""
        self.given = 0
        """Training steps of the whole run when it gave its last batch."""
        self.until: int | None = None
        """The same when another pass gave a batch since then."""
        self.length = Length()
        self.clock: tuple[Any, ...] = ()
        """The agreement's, when it began."""
        self.shared: str | None = None
        """What it is called among the ranks, once a collective was issued in it."""
        self.agreed: bool | None = None
        """Whether all ranks cut it short, once that was asked."""
        self.cut = False
        self.ended = False
        self.watch: Any = None
