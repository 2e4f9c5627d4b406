"""DataLoaders: where they are made, what their samplers will draw, what their loops take, and where passes end.

And loading of samples: the random states with which each worker begins, and what it loads first, told by the worker
itself; what the main process draws while it loads samples.

Also where fast-forward cuts a pass short: what drives the iterator is told that it is exhausted.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from .. import loops, randomness, shorten
from ..digest import fingerprint
from ..events.data import Worker
from ..iterated import OpenPass
from ..passes import Passes
from ..patch import Args, Kwargs, after_call, guarded, leave_out, watch
from ..session import Part, Session
from ..shorten import Cutting
from ..training import Training

_SAMPLERS = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "DistributedSampler")


_BATCHES = 16
"""How many batches of a pass are looked at, where the main process loads them."""
_SAMPLES_OF_WORKER = 64
"""How many samples of a worker are looked at."""


def install(session: Session) -> None:
    """Watch DataLoaders, their iterators, samplers and Subsets."""
    session.install("optimizer")  # its step is counted before it is asked whether the run has had enough
    passes = Passes(session)
    data = session.torch.utils.data
    iterator = data.dataloader._BaseDataLoaderIter
    session.patch(data.DataLoader, "__init__", after_call(_constructing(session, passes)))
    session.patch(iterator, "__init__", after_call(_beginning(session, passes, with_workers=False)))
    session.patch(iterator, "_reset", after_call(_beginning(session, passes, with_workers=True)))
    session.patch(iterator, "_next_index", functools.partial(_watch_draw, session, passes))
    cutting = shorten.install(session, passes)
    session.patch(iterator, "__next__", functools.partial(_watch_next, passes, cutting))
    sampler_made = after_call(lambda _, args, kwargs: passes.sampler_made(args[0], session.here()))
    for name in _SAMPLERS:
        session.patch(getattr(data, name), "__init__", sampler_made)
    _watch_lengths(session, passes)
    subset_made = after_call(lambda _, args, kwargs: passes.splits.made(args[0], session.here()))
    session.patch(data.Subset, "__init__", subset_made)
    splitting = watch(session.torch, lambda *_: passes.splits.open_group(), passes.splits.close_group)
    session.patch_function(("torch.utils.data.dataset", "torch.utils.data"), "random_split", splitting)
    _watch_fetching(session)
    session.writer.ticks.append(passes.tell)
    session.before_end.append(lambda how: passes.tell(grown=1))


def _constructing(session: Session, passes: Passes) -> Callable[..., None]:
    signature = inspect.signature(session.torch.utils.data.DataLoader.__init__)

    def look(_: Any, args: Args, kwargs: Kwargs) -> None:
        given = signature.bind(*args, **kwargs).arguments
        batches = given.get("batch_sampler")
        passes.construct(args[0], session.here(), given.get("sampler") if batches is None else batches)

    return look


def _beginning(session: Session, passes: Passes, *, with_workers: bool) -> Callable[..., None]:
    """An iterator with workers begins a pass by its _reset, and one without by being made."""

    def look(_: Any, args: Args, kwargs: Kwargs) -> None:
        iterator, loader = args[:2]
        if with_workers or not iterator._num_workers:
            passes.begin(iterator, loader, session.here())

    return look


def _watch_lengths(session: Session, passes: Passes) -> None:
    """Note what datasets answer when torch's samplers ask for their length, so that nobody has to ask again."""

    def length(sized: Any) -> int:
        count = len(sized)
        passes.lengths.note(sized, count)
        return count

    for name in ("sampler", "distributed"):
        module = sys.modules[f"torch.utils.data.{name}"]
        vars(module)["len"] = length
        session.on_undo(functools.partial(vars(module).pop, "len"))


def _watch_draw(session: Session, passes: Passes, original: Callable[..., Any]) -> Callable[..., Any]:
    training = Training.of(session)

    # Not by ``around``, which takes longer than all of this: it stands in every step.
    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        try:
            if (now := passes.of(self)) is None or now.settled:
                return original(self)
            passes.before_draw(now, self)
            issued = training.collectives
            index = original(self)
            now.collectives = now.collectives or training.collectives > issued
            passes.drawn(now, index)
            return index
        except BaseException as passing:
            leave_out(passing)
            raise

    return _next_index


def _cuts(passes: Passes, cutting: Cutting | None) -> Callable[[Any, OpenPass, FrameType], bool | None]:
    @guarded
    def cuts(self: Any, now: OpenPass, frame: FrameType) -> bool:
        if cutting is None or not cutting.cuts(now, frame):
            return False
        if not now.ended:
            if not now.foreseen and now.driver == loops.FOR and loops.takes_all(frame, self):
                passes.draw_to_end(now, self)
            passes.finish(now, cut=not (now.drawn_to_end and now.asked == now.taken))
            if self._num_workers and not self._persistent_workers:
                self._shutdown_workers()
        return True

    return cuts


def _watch_next(passes: Passes, cutting: Cutting | None, original: Callable[..., Any]) -> Callable[..., Any]:
    cuts, training = _cuts(passes, cutting), passes.draws.training

    @functools.wraps(original)
    def take(self: Any) -> Any:
        try:
            if (now := passes.of(self)) is None:
                return original(self)
            passes.asked(now)
            if cutting is not None and cuts(self, now, sys._getframe(1)):
                raise StopIteration
            is_timed = not training.quiet and training.waits.is_training_thread()
            began, idle = time.monotonic(), training.waits.idle() if is_timed else None
            try:
                batch = original(self)
            except StopIteration:
                passes.finish(now)
                raise
            passes.took(now, time.monotonic() - began, batch, idle)
            return batch
        except BaseException as passing:
            leave_out(passing)
            raise

    return take


def _watch_fetching(session: Session) -> None:
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
    left = _SAMPLES_OF_WORKER
    dataset: Any = None
    """Where it is no stream: one may shuffle its files alike in each worker, to divide them."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.generators: dict[str, str] = {}
        """Where its generators stood after the batch before."""

    def begin(self, *_: Any) -> bool:
        """It is seeded, the script's worker_init_fn has run, and it is about to open the dataset."""
        if (info := self.torch.utils.data.get_worker_info()) is not None and self.pid != os.getpid():
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
        """Add the dataset's generators that each batch moves, by where they stand after the second one. One that is
        seeded anew for each sample stands elsewhere in each worker then."""
        before, self.generators = self.generators, randomness.own_states(self.torch, self.dataset)
        for name, state in self.generators.items():
            if event.seeds.get(name) is None and before.get(name, state) != state:
                event.seeds = {**event.seeds, name: state}
            if name in event.seeds:
                event.drew = (*event.drew, name)
