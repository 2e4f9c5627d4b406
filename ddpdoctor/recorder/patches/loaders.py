"""DataLoaders: where they are made, what their samplers will draw, what their loops take, and where passes end.

Also where fast-forward cuts a pass short: what drives the iterator is told that it is exhausted.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from .. import loops, shorten
from ..iterated import OpenPass
from ..passes import Passes
from ..patch import after_call, guarded, leave_out, watch
from ..session import Session
from ..shorten import Cutting
from ..training import Training

_SAMPLERS = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "DistributedSampler")


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
    session.writer.ticks.append(passes.drain)
    session.before_end.append(lambda how: passes.drain())


def _constructing(session: Session, passes: Passes) -> Callable[..., None]:
    signature = inspect.signature(session.torch.utils.data.DataLoader.__init__)

    def look(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = signature.bind(*args, **kwargs).arguments
        batches = given.get("batch_sampler")
        passes.construct(args[0], session.here(), given.get("sampler") if batches is None else batches)

    return look


def _beginning(session: Session, passes: Passes, *, with_workers: bool) -> Callable[..., None]:
    """An iterator with workers begins a pass by its _reset, and one without by being made."""

    def look(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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

    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        try:
            now = passes.of(self)
            if now is None or now.settled:
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
            now = passes.of(self)
            if now is None:
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
