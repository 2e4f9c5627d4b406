"""DataLoaders: where they are made, what their samplers will draw, what their loops take, and where passes end.

Also where fast-forward cuts a pass short: what drives the iterator is told that it is exhausted.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import loops, shorten
from ..guard import guarded
from ..passes import Passes
from ..training import Training

if TYPE_CHECKING:
    from types import FrameType

    from ..iterated import Pass
    from ..session import Session

_SAMPLERS = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "DistributedSampler")


def install(session: Session) -> None:
    """Watch DataLoaders, their iterators, samplers and Subsets."""
    session.install("optimizer")  # its step is counted before it is asked whether the run has had enough
    passes = Passes(session)
    data = session.torch.utils.data
    iterator = data.dataloader._BaseDataLoaderIter
    session.patch(data.DataLoader, "__init__", functools.partial(_watch_loader, session, passes))
    session.patch(iterator, "__init__", functools.partial(_watch_begin, session, passes))
    session.patch(iterator, "_reset", functools.partial(_watch_reset, session, passes))
    session.patch(iterator, "_next_index", functools.partial(_watch_draw, session, passes))
    session.patch(iterator, "__next__", functools.partial(_watch_next, session, passes))
    for name in _SAMPLERS:
        session.patch(getattr(data, name), "__init__", functools.partial(_watch_sampler, session, passes))
    _watch_lengths(session, passes)
    session.patch(data.Subset, "__init__", functools.partial(_watch_subset, session, passes))
    splitters = ("torch.utils.data.dataset", "torch.utils.data")
    session.patch_function(splitters, "random_split", functools.partial(_watch_split, passes))
    session.writer.ticks.append(passes.drain)
    session.before_end.append(lambda how: passes.drain())
    shorten.install(session, passes)


def _watch_loader(session: Session, passes: Passes, original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    @guarded
    def tell(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        batches = given.get("batch_sampler")
        passes.construct(self, session.here(), given.get("sampler") if batches is None else batches)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        tell(self, args, kwargs)

    return init


def _watch_begin(session: Session, passes: Passes, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, loader: Any) -> None:
        original(self, loader)
        if not self._num_workers:  # one with workers goes through _reset
            passes.begin(self, loader, session.here())

    return init


def _watch_reset(session: Session, passes: Passes, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def _reset(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        original(self, loader, *args, **kwargs)
        passes.begin(self, loader, session.here())

    return _reset


def _watch_lengths(session: Session, passes: Passes) -> None:
    """Note what datasets answer when torch's samplers ask for their length, so that nobody has to ask again."""

    def length(sized: Any) -> int:
        found = len(sized)
        passes.lengths.note(sized, found)
        return found

    for name in ("sampler", "distributed"):
        module = sys.modules[f"torch.utils.data.{name}"]
        vars(module)["len"] = length
        session.on_undo(functools.partial(vars(module).pop, "len"))


def _watch_draw(session: Session, passes: Passes, original: Callable[..., Any]) -> Callable[..., Any]:
    training = Training.of(session)

    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        now = passes.of(self)
        if now is None or now.settled:
            return original(self)
        passes.before_draw(now, self)
        issued = training.collectives
        index = original(self)
        now.collectives = now.collectives or training.collectives > issued
        passes.drawn(now, index)
        return index

    return _next_index


def _watch_next(session: Session, passes: Passes, original: Callable[..., Any]) -> Callable[..., Any]:
    full = session.options.full

    @guarded
    def cuts(self: Any, now: Pass, frame: FrameType) -> bool:
        if not shorten.should_cut(session, passes.agreement, now, frame):
            return False
        if not now.ended:
            if not now.foreseen and now.driver == loops.FOR and loops.takes_all(frame, self):
                passes.draw_to_end(now, self)
            passes.finish(now, cut=not (now.drawn_to_end and now.asked == now.taken))
            if self._num_workers and not self._persistent_workers:
                self._shutdown_workers()
        return True

    @functools.wraps(original)
    def take(self: Any) -> Any:
        now = passes.of(self)
        if now is None:
            return original(self)
        if not full and cuts(self, now, sys._getframe(1)):
            raise StopIteration
        began = time.monotonic()
        try:
            batch = original(self)
        except StopIteration:
            passes.finish(now)
            raise
        passes.took(now, time.monotonic() - began, batch)
        return batch

    return take


def _watch_sampler(session: Session, passes: Passes, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        passes.sampler_made(self, session.here())

    return init


def _watch_subset(session: Session, passes: Passes, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        passes.splits.made(self, session.here())

    return init


def _watch_split(passes: Passes, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def random_split(*args: Any, **kwargs: Any) -> Any:
        passes.splits.open_group()
        try:
            return original(*args, **kwargs)
        finally:
            passes.splits.group = None

    return random_split
