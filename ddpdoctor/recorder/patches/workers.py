"""Loading of samples: the random states with which each DataLoader worker begins, and what it loads first, told by the
worker itself; what the main process draws while it loads samples.
"""

from __future__ import annotations

import os
from typing import Any

from .. import randomness
from ..digest import fingerprint
from ..events.data import Worker
from ..patch import Args, Kwargs, guarded, watch
from ..session import Part, Session

_BATCHES = 16
"""How many batches of a pass are looked at, where the main process loads them."""
_SAMPLES = 64
"""How many samples of a worker are looked at."""


def install(session: Session) -> None:
    """Watch what fetches samples, where it does so in a worker."""
    worker, torch = _Worker(session), session.torch

    def made(_: Any, fetcher: Any, error: BaseException | None) -> None:
        if error is None:
            worker.watch(fetcher)
            if torch.utils.data.get_worker_info() is None:
                _watch_fetch(session, fetcher)

    make = watch(torch, worker.begin, made)
    session.patch(torch.utils.data.dataloader._DatasetKind, "create_fetcher", make)


def _watch_fetch(session: Session, fetcher: Any) -> None:
    """Note what loading in the main process draws; the sampler has drawn before."""
    left, original = iter(range(_BATCHES)), fetcher.fetch

    def begin(*_: Any) -> Any:
        if next(left, None) is None:
            fetcher.fetch = original
            return None
        return randomness.places(session.torch, randomness.LOADING)

    def end(before: Any, _: Any, error: BaseException | None) -> None:
        if error is None:
            now = randomness.places(session.torch, randomness.LOADING)
            session.shared[randomness.LOADED] = randomness.moved(before, now)

    fetcher.fetch = watch(session.torch, begin, end)(original)


class _Worker(Part):
    """This process, if it is a worker."""

    pid = 0
    event: Worker | None = None
    left = _SAMPLES
    dataset: Any = None
    """Where it is no stream: one may shuffle its files alike in each worker, to divide them."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.generators: dict[str, str] = {}
        """Where its generators stood after the batch before."""

    def begin(self, *_: Any) -> bool:
        """It is seeded, the script's worker_init_fn has run, and it is about to open the dataset."""
        info = self.torch.utils.data.get_worker_info()
        if info is not None and self.pid != os.getpid():
            self.pid = os.getpid()
            self.event = Worker(info.id, randomness.states(self.torch), pid=self.pid)
            self.session.event(self.event, now=True)
        return True

    def watch(self, fetcher: Any) -> None:
        """Look at the first samples on their way to being collated."""
        if self.pid != os.getpid() or not self.left:
            return
        iterable = self.torch.utils.data.IterableDataset
        self.dataset = None if isinstance(fetcher.dataset, iterable) else fetcher.dataset
        original = fetcher.collate_fn

        def collate(args: Args, _: Kwargs) -> None:
            self.look(args[0] if fetcher.auto_collation else [args[0]])
            if not self.left:
                fetcher.collate_fn = original

        fetcher.collate_fn = watch(self.torch, collate)(original)

    def look(self, samples: Any) -> None:
        """Samples were loaded."""
        torch, event = self.torch, self.event
        if event is None:
            return
        fingerprints = [fingerprint(sample, torch) for sample in samples[: self.left]]
        self.left -= len(fingerprints)
        states = randomness.states(torch)
        event.drew = tuple(name for name, state in states.items() if event.seeds.get(name) != state)
        event.samples = (*event.samples, *(digest for digest in fingerprints if digest is not None))
        self._look_at_generators(event)
        self.session.event(event, now=True)

    @guarded
    def _look_at_generators(self, event: Worker) -> None:
        """Add the dataset's generators that each batch moves, by where they stand after the second one.

        One that is seeded anew for each sample stands elsewhere in each worker then.
        """
        before, self.generators = self.generators, randomness.own_states(self.torch, self.dataset)
        for name, state in self.generators.items():
            known = event.seeds.get(name)
            if known is None and before.get(name, state) != state:
                event.seeds = {**event.seeds, name: state}
            if name in event.seeds:
                event.drew = (*event.drew, name)
