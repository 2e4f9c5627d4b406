"""Where a pass over a DataLoader ends early, in a run that is longer than its budget of time, and where the run ends.

Of what is left of the budget, a pass that does not fit gets half. Whether it is over the ranks ask after ever more
batches, and the first to ask answers for all: agreement.py. A pass ends early only where its loop takes that for the
end of its data, on all ranks after the same batch, or on none.
"""

import multiprocessing
import os
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any

from . import loops
from .agreement import Agreement, Clock
from .iterated import OpenPass
from .passes import Passes
from .patch import guarded
from .patches.ends import tell_exit
from .session import Session
from .training import TrainingPart

_BACKWARDS_STEPPED = "backwards stepped"
"""What the session shares under this name: the backwards of the run that an optimizer's step has followed."""
_FIRST_BATCHES, _LATER_BATCHES = 8, 2
"""That a pass gets at least: as long as no pass over its loader was cut short, and later."""
_MOST_TURNS = 16
"""Ranks that may take turns at batches without one getting fewer."""
_LEAST_STEPS = 2
"""Training steps of a pass that trains."""
_MOST_MORE = 128
"""Batches that a pass whose time is over may go on until it has them, and until no backward waits for a step."""
_LOOKS = 4
"""The ranks ask again after a quarter more batches."""
_LATE = 1.25
"""After how many times its budget a run is ended; until then the passes get their fewest batches."""
_LATE_BY_BATCHES = 120.0
"""The same in seconds, where batches are asked for in place of time."""
_APART_SECONDS = 5.0
"""By which a rank may have begun before another, where imports take long; its own time is then up that much earlier."""
_AHEAD = 3
"""Training steps between the announcement that time is up and the end; ranks are one apart at most."""


class Cutting(TrainingPart):
    """Ends the passes of this process early, in a run that does not fit into its budget."""

    def __init__(self, session: Session, agreement: Agreement) -> None:
        super().__init__(session)
        self.agreement = agreement
        options = session.options
        self.budget = options.budget
        self.late = options.time_limit or (_LATE_BY_BATCHES if options.batches else _LATE * options.budget)
        self.began: float | None = None
        """When the first batch was asked for, or the first training step made."""

    def begin(self) -> float:
        """The seconds of training until now, which begins with the first call."""
        self.began = time.monotonic() if self.began is None else self.began
        return time.monotonic() - self.began

    def cuts(self, now: OpenPass, frame: FrameType) -> bool:
        """Whether the pass ends here; the frame is the one that asks for its next batch."""
        if now.ended:
            return now.cut
        elapsed = self.begin()
        # What other threads draw waits in a queue: its end says nothing of where the training stands.
        if self.training.joined or threading.current_thread() is not threading.main_thread():
            return False
        now.driver = loops.driver(frame)
        if now.driver == loops.HAND:
            return False
        trains = self.session.backwards > now.backwards
        if now.taken == 1 and not trains and not loops.expects_the_end(frame):
            now.length.reads_ahead = True
        self.agreement.watch(now)
        if trains and (now.length.reads_ahead or (now.shared is None and self._ranks() > 1)):
            return False
        if now.length.over is None and not self._is_over(now, elapsed):
            return False
        enough = not trains or self._is_enough(now) or now.taken >= (now.length.over or 0) + _MOST_MORE
        return self.agreement.cuts(now, enough=enough)

    def _is_over(self, now: OpenPass, elapsed: float) -> bool:
        """Whether the ranks have decided that this pass is long enough."""
        now.length.asks_at = now.length.asks_at or self._in_turns(self._fewest(now))
        if now.taken < now.length.asks_at or now.taken == now.batches:
            return False
        next_look = self._in_turns(now.taken + now.taken // _LOOKS + 1)
        if not self.agreement.is_over(now, here=self._is_long(now, elapsed, next_look)):
            now.length.asks_at = next_look
            return False
        now.length.over, now.length.over_steps = now.taken, self.session.steps
        return True

    def _is_long(self, now: OpenPass, elapsed: float, next_look: int) -> bool:
        """Whether its share of the time is up before the ranks ask again, and its end is not within the budget."""
        if self.session.options.batches:
            return True
        spent = time.monotonic() - now.length.began
        began, of_a_batch = elapsed - spent, spent / now.taken
        if now.batches is not None and began + now.batches * of_a_batch <= self.budget:
            return False
        # How long a stream is nobody knows: half of the budget for it might cut what fits.
        share = self.budget if now.batches is None else began + max(0.0, self.budget - began) / 2
        return began + next_look * of_a_batch > share

    def _fewest(self, now: OpenPass) -> int:
        later = now.loader.cut > 0 and now.driver != loops.CYCLE
        return self.session.options.batches or (_LATER_BATCHES if later else _FIRST_BATCHES)

    def _in_turns(self, batches: int) -> int:
        """Ranks may take turns at the batches of one loader: each is to have as many."""
        ranks = self._ranks()
        return -(-batches // ranks) * ranks if ranks <= _MOST_TURNS else batches

    def _ranks(self) -> int:
        dist = self.torch.distributed
        return int(dist.get_world_size()) if dist.is_available() and dist.is_initialized() else 1

    def _is_enough(self, now: OpenPass) -> bool:
        """Whether it trained enough and is between two training steps: backwards left over would look forgotten."""
        pending = self.session.backwards > self.session.shared.get(_BACKWARDS_STEPPED, 0)
        return self.session.steps - now.steps >= _LEAST_STEPS and (
            not pending or self.session.steps - now.length.over_steps >= _LEAST_STEPS
        )


class Ending(TrainingPart):
    """Ends a run that goes on and on, on every rank before the same training step."""

    def __init__(self, session: Session, passes: Passes, cutting: Cutting) -> None:
        super().__init__(session)
        self.passes, self.cutting, self.agreement = passes, cutting, passes.agreement
        self.joint = 0
        """Training steps with a collective since the one before: as many on every rank."""
        self.alone = False
        """Whether the last training step was none of them."""
        self.meeting: str | None = None
        """Where the ranks meet before the next training step, to leave together."""
        self._missed = 0
        """Meetings to which a rank did not come."""
        self._seen = 0
        self._clock: Clock = ()
        self._hook: Any = None

    @guarded
    def stepped(self) -> None:
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
            register = self.torch.nn.modules.module.register_module_forward_pre_hook
            self._hook = register(self._before_forward)

    def _count(self) -> None:
        before, self._clock = self._clock, self.agreement.clock()
        self.alone = self._clock == before
        self.joint += not self.alone

    def _decide(self) -> str | None:
        """The name of the meeting, where the run has had enough."""
        if self.training.joined:  # ranks have as many steps as they have data
            return None
        late = self.cutting.begin() - self.cutting.late
        if self.alone:
            is_time = late >= self._missed * _APART_SECONDS
            return f"alone-{self._missed}" if is_time and self.agreement.all_ready() else None
        last = None
        if late >= -_APART_SECONDS:
            last = self.agreement.announced(self.joint + _AHEAD if late >= 0 else None)
        return None if last is None or self.joint < last << self._missed else str(self.joint)

    def _before_forward(self, module: Any, args: Any) -> None:
        # An evaluation that follows the step is still seen; the next forward that trains is one too many.
        if module.training and self.torch.is_grad_enabled():
            self._end()

    @guarded
    def _end(self) -> None:
        self.passes.tell(grown=1)
        if self._hook is not None:
            self._hook.remove()
        meeting, self.meeting, self._hook = self.meeting, None, None
        if meeting is not None and self.agreement.meet(meeting):
            tell_exit(self.session, "shortened", at=self.session.here(), status=0)
            end_process()
        self._missed += 1


def end_process() -> None:
    """Leave without another line of the script, its exit handlers included, but with what it printed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    for child in multiprocessing.active_children():
        if child.daemon:  # a DataLoader worker
            child.terminate()
    getattr(os._exit, "__wrapped__", os._exit)(0)


def install(session: Session, passes: Passes) -> Cutting | None:
    """End runs that take too long; what cuts their passes short. None of either at full length."""
    if session.options.full:
        return None
    cutting = Cutting(session, passes.agreement)
    ending = Ending(session, passes, cutting)
    register = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
    session.on_undo(register(lambda *_: ending.stepped()).remove)
    return cutting
