"""Fast-forward: where a pass over a DataLoader ends early, and where a run that never ends is ended.

Every rank decides by what is the same on all ranks of a right program, batches, backwards and training steps, and ends
nothing in which others take part unless all of them end it: agreement.py.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import loops
from .guard import guarded
from .patches.ends import tell_exit
from .training import Training

if TYPE_CHECKING:
    from types import FrameType

    from .agreement import Agreement, Clock
    from .iterated import Pass
    from .passes import Passes
    from .session import Session

_BACKWARDS_STEPPED = "backwards stepped"
"""What the session shares under this name: the backwards of the run that an optimizer's step has followed."""
_FULL_PASSES = 3
"""Passes of a loader that are cut after all the batches; later ones get just enough for two training steps."""
_LATER_BATCHES = 2
_MOST_TURNS = 16
"""Ranks that may take turns at batches without one getting fewer."""
_LEAST_STEPS = 2
"""Training steps of a pass that trains."""
_MOST_TIMES = 16
"""As many times the usual batches may pass until then."""
_LOOSE_STEPS = 60
"""Training steps outside passes that can be cut; the run is ended after them, or after as many again where a rank took
no part."""
_APART_SECONDS = 5.0
"""By which a rank may have begun before another, where imports take long; its own time is then up that much earlier."""
_AHEAD = 3
"""Training steps between the announcement that time is up and the end; ranks are one apart at most."""


def should_cut(session: Session, agreement: Agreement, now: Pass, frame: FrameType) -> bool:
    """Whether the pass ends here, in a run that is shortened; the frame is the one that asks for its next batch."""
    if now.ended:
        return now.cut
    now.driver = loops.driver(frame)
    if now.driver == loops.HAND:
        return False
    limit = _limit(session, now)
    agreement.watch(now, limit)
    if now.taken < limit or now.taken == now.batches:
        return False
    if now.at_limit is None:
        now.at_limit = session.steps
    trains = session.backwards > now.backwards
    enough = not trains or _is_enough(session, now) or now.taken >= limit * _MOST_TIMES
    return agreement.cuts(now, enough=enough)


def _is_enough(session: Session, now: Pass) -> bool:
    """Whether it trained enough and stands between two training steps: a rest of backwards would look forgotten."""
    pending = session.backwards > session.shared.get(_BACKWARDS_STEPPED, 0)
    return session.steps - now.steps >= _LEAST_STEPS and (
        not pending or session.steps - (now.at_limit or 0) >= _LEAST_STEPS
    )


def _limit(session: Session, now: Pass) -> int:
    every = now.loader.cut < _FULL_PASSES or now.driver == loops.CYCLE
    batches = session.options.batches if every else min(_LATER_BATCHES, session.options.batches)
    # Ranks may take turns at the batches of one loader: each is to have as many.
    ranks = _ranks(session)
    return -(-batches // ranks) * ranks if ranks <= _MOST_TURNS else batches


def _ranks(session: Session) -> int:
    dist = session.torch.distributed
    return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 1


class Ending:
    """Ends a run that goes on and on, on every rank before the same training step."""

    def __init__(self, session: Session, passes: Passes) -> None:
        self.session = session
        self.passes = passes
        self.training = Training.of(session)
        self.agreement = passes.agreement
        self.joint = 0
        """Training steps with a collective since the one before: as many on every rank."""
        self.loose = 0
        """Those of them outside passes that can be cut."""
        self.alone = 0
        """Training steps since the last of them."""
        self.meeting: str | None = None
        """Where the ranks meet before the next training step, to leave together."""
        self._missed = 0
        """Meetings to which a rank did not come."""
        self._not_before = _LOOSE_STEPS
        self._seen = 0
        self._clock: Clock = ()
        self._began = time.monotonic()
        self._hook: Any = None

    @guarded
    def stepped(self) -> None:
        """An optimizer took a step."""
        self.passes.drain()
        self.session.shared[_BACKWARDS_STEPPED] = self.session.backwards
        new = self.session.steps - self._seen
        self._seen = self.session.steps
        if new <= 0 or self.session.in_worker:
            return
        if self.meeting is not None:  # the script trains what is no module
            self._end()
        self._count()
        self.meeting = self._decide()
        if self.meeting is not None:
            register = self.session.torch.nn.modules.module.register_module_forward_pre_hook
            self._hook = register(self._before_forward)

    def _count(self) -> None:
        before, self._clock = self._clock, self.agreement.clock()
        if self._clock == before:
            self.alone += 1
            return
        self.alone = 0
        self.joint += 1
        self.loose += 0 if self._in_a_pass() else 1

    def _in_a_pass(self) -> bool:
        """Whether this step belongs to a pass whose loop ends by itself or by us."""
        return any(now.driver == loops.FOR and now.taken for now in self.passes.open.values())

    def _decide(self) -> str | None:
        """The name of the meeting, where the run has had enough."""
        if self.training.joined:  # ranks have as many steps as they have data
            return None
        if self.alone:
            enough = self.alone >= _LOOSE_STEPS << self._missed and self.agreement.all_ready()
            return f"alone-{self._missed}" if enough else None
        if self.loose >= self._not_before and not self.passes.cut_training:
            return str(self.joint)
        late = time.monotonic() - self._began - self.session.options.time_limit
        last = None
        if late >= -_APART_SECONDS:
            last = self.agreement.announced(self.joint + _AHEAD if late >= 0 else None)
        return None if last is None or self.joint < last << self._missed else str(self.joint)

    def _before_forward(self, module: Any, args: Any) -> None:
        # An evaluation that follows the step is still seen; the next forward that trains is one too many.
        if module.training and self.session.torch.is_grad_enabled():
            self._end()

    @guarded
    def _end(self) -> None:
        self.passes.drain()
        if self._hook is not None:
            self._hook.remove()
        meeting, self.meeting, self._hook = self.meeting, None, None
        if meeting is not None and self.agreement.meet(meeting):
            tell_exit(self.session, "shortened", at=self.session.here(), status=0)
            end_process(0)
        self._missed += 1
        self._not_before = 2 * self.loose


def end_process(status: int) -> None:
    """Leave without another line of the script, its exit handlers included, but with what it printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    for child in multiprocessing.active_children():
        if child.daemon:  # a DataLoader worker
            child.terminate()
    leave = getattr(os._exit, "__wrapped__", os._exit)
    leave(status)


def install(session: Session, passes: Passes) -> None:
    """End runs that do not end by themselves, where runs are shortened."""
    if session.options.full:
        return
    ending = Ending(session, passes)
    register = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
    handle = register(functools.partial(_after_step, ending))
    session.on_undo(handle.remove)


def _after_step(ending: Ending, *_: Any) -> None:
    ending.stepped()
