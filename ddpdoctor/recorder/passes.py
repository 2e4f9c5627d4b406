"""Follows each iteration over a DataLoader from its beginning to its end."""

from __future__ import annotations

import os
import time
import weakref
from array import array
from collections import deque
from contextlib import suppress
from typing import Any

from . import contents, samplers
from .agreement import Agreement
from .contents import Splits
from .digest import fingerprint, fingerprints_of_rows, length_of
from .events.data import Batch, Integers, Loader, LoaderMade, LoaderPass, Sampler, WorkersStarted
from .iterated import Loader as Known
from .iterated import OpenPass
from .lengths import Lengths, attribute
from .patch import guarded
from .randomness import LOADED, StepDraws
from .session import Session
from .where import Where
from .writer import Numbers

ENDED_WITHOUT_TRAINING = "ended without training"
"""Shared under this name: when a pass ended last in which no optimizer stepped, and the training steps until then."""
LIMITED = "limited"
"""What the session shares under this name: after how many batches a framework leaves a pass because we told it to."""
WITHOUT_GRAD = "without grad"
"""What the session shares under this name: when a forward without autograd ended last."""
_CHECKED_LATER = 4
"""Batches at the beginning of a pass after the third whose content and indices are looked at."""
_ROWS = 64
"""Samples at the beginning of a loader's first pass that are looked at one by one."""
_MOST_SAMPLERS = 500
_LEARNT = 1_000_000
"""Indices that are noted as they are drawn, where they could not be foreseen."""
_DRAWING_SECONDS = 10.0
"""For the rest of a pass that was cut short."""


class Passes:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.numbers = Numbers(session.writer)
        self.lengths = Lengths()
        self.agreement = Agreement(session)
        self.draws = StepDraws.of(session)
        self.splits = Splits(session, self.numbers, self.lengths)
        self.loaders: weakref.WeakKeyDictionary[Any, Known] = weakref.WeakKeyDictionary()
        self._samplers: dict[int, tuple[Any, Where | None]] = {}
        self._given: list[tuple[weakref.ref[Any], int]] = []
        """The samplers that loaders were given; a framework drops the loader, and wraps its sampler in another."""
        self._current: weakref.WeakKeyDictionary[Any, OpenPass] = weakref.WeakKeyDictionary()
        self._last: OpenPass | None = None
        """The pass that was asked for last: mostly the one that is asked for next."""
        self.open: dict[int, OpenPass] = {}
        """Passes that began to draw and have not ended."""
        self._left: deque[tuple[OpenPass, float, int]] = deque()
        self._made = self._iterated = self._begun = 0
        self._pid = os.getpid()
        self._constructed: list[LoaderMade] = []

    @guarded
    def construct(self, loader: Any, at: Where | None, given: Any) -> None:
        known = Known(self._made, at)
        self._made += 1
        self.loaders[loader] = known
        if known.made < 500:
            name = None if given is None else type(given).__name__
            with suppress(TypeError):  # None, or a list, which is wrapped by nothing
                self._given.append((weakref.ref(given), known.made))
            made = LoaderMade(known.made, self.splits.key(loader.dataset), name)
            self._constructed.append(made)
            self.session.event(made)

    @guarded
    def begin(self, iterator: Any, loader: Any, at: Where | None) -> None:
        """A pass is about to draw for the first time."""
        if self._pid != os.getpid():
            self._begin_process()
        known = self.loaders.get(loader)
        if known is None:  # constructed before the recorder began
            self.construct(loader, None, None)
            known = self.loaders[loader]
        if (before := self._current.get(iterator)) is not None:
            self._tell_end(before, "left")
        if known.index is None:
            self._tell_loader(known, loader)
        begun = self._current[iterator] = self._last = OpenPass(known, at)
        begun.watch = weakref.ref(iterator, lambda _: self._leave(begun))

    def of(self, iterator: Any) -> OpenPass | None:
        """The pass that an iterator is on; None of one that is not watched."""
        last = self._last
        return last if last is not None and last.watch() is iterator else self._look_up(iterator)

    @guarded
    def _look_up(self, iterator: Any) -> OpenPass | None:
        current = self._last = self._current.get(iterator)
        return current

    def _leave(self, now: OpenPass) -> None:
        # Called by the garbage collector, which may run anywhere: what is to be written has to wait.
        when, steps = time.monotonic(), self.session.steps
        self._left.append((now, when, steps))
        if now.taken and not now.ended and steps == now.steps:
            self.session.shared[ENDED_WITHOUT_TRAINING] = when, steps

    def _tell_loader(self, known: Known, loader: Any) -> None:
        torch = self.session.torch
        known.index, self._iterated = self._iterated, self._iterated + 1
        streams = isinstance(loader.dataset, torch.utils.data.IterableDataset)
        links = [] if streams else list(samplers.chain(loader._index_sampler))
        known.batch_size = _batch_size(loader)
        inner, known.places = contents.innermost(loader.dataset, torch, self.lengths)
        event = Loader(
            known.index,
            known.at,
            type(inner).__name__,
            None if streams else self.lengths.of(loader.dataset),
            streams,
            known.batch_size,
            bool(loader.drop_last or attribute(loader.batch_sampler, "drop_last") is True),
            loader.num_workers,
            None if streams else self._describe(loader),
            contents.content(inner, torch, self.lengths),
            made=known.made,
            data=self.splits.key(loader.dataset),
            holds=tuple(made for given, made in self._given if any(given() is link for link in links)),
            parts=self.splits.of(loader.dataset),
            ignores_index=not streams and contents.ignores_index(inner),
        )
        self.session.event(event)

    def _describe(self, holder: Any) -> Sampler:
        sampler = samplers.drawing(holder)
        made = self._samplers.get(id(sampler))
        at = made[1] if made is not None and made[0]() is sampler else None
        return Sampler(**samplers.describe(sampler), at=at)

    @guarded
    def sampler_made(self, sampler: Any, at: Where | None) -> None:
        if len(self._samplers) < _MOST_SAMPLERS and id(sampler) not in self._samplers:
            self._samplers[id(sampler)] = weakref.ref(sampler), at

    def _begin_process(self) -> None:
        """This is a forked child: what its parent wrote down of what it made stands in another record."""
        self._pid = os.getpid()
        self.open.clear()
        self._iterated = 0
        for loader in self.loaders.values():
            loader.index, loader.passes = None, 0
        for made in self._constructed:
            self.session.event(made)

    @guarded
    def before_draw(self, now: OpenPass, iterator: Any) -> None:
        if now.number < 0:
            self._tell_begin(now, iterator)

    def _tell_begin(self, now: OpenPass, iterator: Any) -> None:
        self.drain()
        now.number, now.loader.passes = now.loader.passes, now.loader.passes + 1
        now.id, self._begun = self._begun, self._begun + 1
        looked_at = now.number < 8 or now.number & (now.number - 1) == 0  # then one in each doubling
        most = self.draws.training.sampling.early
        now.looked_at = most if now.number < 3 else _CHECKED_LATER if looked_at else 0
        now.steps, now.backwards = self.session.steps, self.session.backwards
        now.clock, now.length.began = self.agreement.clock(), time.monotonic()
        self.open[now.id] = now
        streams = iterator._dataset_kind != 0
        now.batches = self._foresee(now, iterator) if looked_at and not streams else None
        sampler = None if streams else self._describe(iterator)
        now.event = LoaderPass(
            now.id,
            -1 if now.loader.index is None else now.loader.index,
            now.number,
            now.at,
            now.length.began,
            sampler=sampler,
            indices=self._store(now) if now.foreseen else None,
            batches=now.batches,
        )
        pids = [worker.pid for worker in getattr(iterator, "_workers", ())]
        if looked_at or pids:
            self._tell_begun(now, now.event)
        if pids and pids != now.loader.workers:
            now.loader.workers = pids
            self.session.event(WorkersStarted(now.id, tuple(pids)))

    def _store(self, now: OpenPass) -> Integers | None:
        indices, places = now.indices, now.loader.places
        if indices is None:
            return None
        return self.numbers.store(indices if places is None else array("q", [places[i] for i in indices]))

    def _foresee(self, now: OpenPass, iterator: Any) -> int | None:
        now.indices = array("q")
        try:
            if now.loader.endless:
                raise samplers.Unforeseen
            now.indices, batches = samplers.foresee(self.session.torch, iterator, self.lengths)
        except Exception:  # noqa: BLE001 - the sampler raises, as it will in the script
            now.loader.endless = True
            return None
        now.foreseen = True
        return batches

    @guarded
    def drawn(self, now: OpenPass, index: Any) -> None:
        """Indices were drawn: note them, or hold them against what was foreseen."""
        now.settled = now.indices is None or (now.foreseen and now.asked >= now.looked_at)
        if now.indices is None or now.settled:
            return
        now.asked += 1
        indices: array[int] = array("q")
        try:
            samplers.add_indices(indices, index)
        except samplers.Unforeseen:
            now.indices = None
            return
        if not now.foreseen:
            now.indices.extend(indices)
            now.indices = None if len(now.indices) > _LEARNT else now.indices
            return
        expected = now.indices[now.position : now.position + len(indices)]
        now.position += len(indices)
        if indices != expected:
            if now.event is not None:
                now.event.indices = now.event.batches = None
                self.session.event(now.event)
            now.indices, now.foreseen, now.loader.endless = None, False, True

    @guarded
    def draw_to_end(self, now: OpenPass, iterator: Any) -> None:
        """Have the script's own sampler draw the rest of a pass that is cut short, as the whole pass would have."""
        deadline = time.monotonic() + _DRAWING_SECONDS
        try:
            # Ranks whose samplers wait for each other must not give up at different draws.
            while now.indices is not None and (now.collectives or time.monotonic() < deadline):
                iterator._next_index()
        except StopIteration:
            now.drawn_to_end = True
        except Exception:  # noqa: BLE001 - of the script's sampler; the pass was to end here
            now.indices = None

    def asked(self, now: OpenPass) -> None:
        """The loop asks for a batch: the steps since the last one were of this pass, unless that was for a test."""
        steps = now.until if now.tested and now.until is not None else self.session.steps
        if now.taken and steps > now.given:
            now.trained += steps - now.given
            now.given = steps

    def took(self, now: OpenPass, waited: float, batch: Any, idle: float | None) -> None:
        """The loop was given a batch, after so many seconds; ``idle`` is what ``waits.idle()`` was before, None where
        that does not matter."""
        for other in self.open.values() if len(self.open) > 1 else ():
            if other is not now and other.until is None:
                other.until = self.session.steps
                self._look_what_for(other)
        now.given, now.until, now.tested = self.session.steps, None, False
        now.given_at, now.given_backwards = time.monotonic(), self.session.backwards
        now.wait += waited
        self.session.waited += waited
        if idle is not None:
            self.draws.training.spend("data", waited, idle)
        now.taken = taken = now.taken + 1
        if taken <= now.looked_at:
            self._tell_batch(now, batch)
        if self.draws.training.quiet:
            self.draws.forget()
        else:
            self.draws.begin()

    @guarded
    def _look_what_for(self, other: OpenPass) -> None:
        """Another pass gives a batch: look whether the last of this one was for a forward without autograd."""
        learnt = (self.session.steps, self.session.backwards) != (other.given, other.given_backwards)
        other.tested = not learnt and other.given_at < self.session.shared.get(WITHOUT_GRAD, 0.0)
        if other.tested and other.event is not None and not other.event.tests:
            other.event.tests = True
            self.session.event(other.event)

    @guarded
    def _tell_batch(self, now: OpenPass, batch: Any) -> None:
        torch = self.session.torch
        rows = fingerprints_of_rows(batch, torch, _ROWS - now.rows) if now.number == 0 else []
        now.rows += len(rows)
        content, drew = fingerprint(batch, torch), self.session.shared.pop(LOADED, None)
        length = length_of(batch, torch)
        self.session.event(Batch(now.id, now.taken, content, tuple(rows), drew, length))

    @guarded
    def finish(self, now: OpenPass, *, cut: bool = False) -> None:
        """The iterator came to its end, or fast-forward ended it."""
        now.cut = cut
        now.loader.cut += cut
        self._tell_end(now, "shortened" if cut else "exhausted")

    @guarded
    def tell(self, grown: int = 2) -> None:
        """Write down how far passes have come, in the background: where that is so many times what was told."""
        self.drain()
        for now in list(self.open.values()):
            if now.event is None or now.pid != os.getpid():
                continue
            if now.told < 0 or (now.trained and not now.event.steps):
                self._tell_begun(now, now.event)
            if now.taken > max(now.looked_at, grown * now.told):
                now.told = now.taken
                self.session.event(Batch(now.id, now.told))

    def _tell_begun(self, now: OpenPass, event: LoaderPass) -> None:
        now.told = max(now.told, 0)
        if not now.ended:
            event.steps = now.trained
        self.session.event(event)
        if now.ended:  # meanwhile, in the thread that trains, which may have written that before
            self.session.event(event)

    @guarded
    def drain(self) -> None:
        """Write down the passes whose iterators are gone."""
        with suppress(IndexError):  # the background thread may have been faster
            while self._left:
                now, when, steps = self._left.popleft()
                self._tell_end(now, "left", when, steps)

    def _tell_end(self, now: OpenPass, how: str, when: float | None = None, steps: int | None = None) -> None:
        event = now.event
        if now.ended or event is None or now.pid != os.getpid():
            return
        if how == "left" and now.taken == self.session.shared.get(LIMITED) and now.taken != now.batches:
            how = "shortened"
        now.ended = True
        self.open.pop(now.id, None)
        if self.session.steps == now.steps and how != "left":
            self.session.shared[ENDED_WITHOUT_TRAINING] = time.monotonic(), now.steps
        learnt = now.indices is not None and not now.foreseen and (how == "exhausted" or now.drawn_to_end)
        if learnt:
            event.indices, event.batches = self._store(now), now.asked
        event.end, event.ended = time.monotonic() if when is None else when, how
        event.taken, event.wait = now.taken, round(now.wait, 6)
        ended = self.session.steps if steps is None else steps
        rest = (ended if now.until is None else now.until) - now.given if now.taken else 0
        event.steps = now.trained + max(0, rest)
        self.session.event(event)


def _batch_size(loader: Any) -> int | None:
    size = loader.batch_size or attribute(loader.batch_sampler, "batch_size")
    return size if isinstance(size, int) else None
