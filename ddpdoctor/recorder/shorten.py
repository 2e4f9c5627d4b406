"""Fast-forward: where a pass over a DataLoader ends early, and where a run that never ends is ended.

Every rank decides by itself and must come to the same result without a word to the others, so the rules know only
what is the same on all ranks of a right program: batches, backwards and training steps.
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

if TYPE_CHECKING:
    from types import FrameType

    from .iterated import Pass
    from .passes import Passes
    from .session import Session

_BACKWARDS_STEPPED = "backwards stepped"
"""What the session shares under this name: the backwards of the run that an optimizer's step has followed."""
_FULL_PASSES = 3
"""Passes of a loader that get all the batches; later ones get just enough for two training steps."""
_LATER_BATCHES = 2
_MOST_TURNS = 16
"""Ranks that may take turns at batches without one getting fewer."""
_LEAST_STEPS = 2
"""Training steps of a pass that trains."""
_MOST_TIMES = 16
"""As many times the usual batches may pass until then."""
_LOOSE_STEPS = 60
"""Training steps outside passes that can be cut; the run is ended after them."""
_AHEAD = 3
"""Training steps between the announcement that time is up and the end; ranks are one apart at most."""
_WAIT = 10.0
"""Seconds that the first rank waits for the last to arrive at the end."""


def should_cut(session: Session, now: Pass, frame: FrameType) -> bool:
    """Whether the pass ends here, in a run that is shortened; the frame is the one that asks for its next batch."""
    if now.ended:
        return now.cut
    now.driver = loops.driver(frame)
    if now.driver == loops.HAND:
        return False
    limit = _limit(session, now)
    if now.taken < limit or now.taken == now.batches:
        return False
    if now.at_limit is None:
        now.at_limit = session.steps
    trains = session.backwards > now.backwards
    return not trains or _is_enough(session, now) or now.taken >= limit * _MOST_TIMES


def _is_enough(session: Session, now: Pass) -> bool:
    """Whether it trained enough and stands between two training steps: a rest of backwards would look forgotten."""
    pending = session.backwards > session.shared.get(_BACKWARDS_STEPPED, 0)
    return session.steps - now.steps >= _LEAST_STEPS and (
        not pending or session.steps - (now.at_limit or 0) >= _LEAST_STEPS
    )


def _limit(session: Session, now: Pass) -> int:
    every = now.number < _FULL_PASSES or now.driver == loops.CYCLE
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
        self.loose = 0
        self.last: int | None = None
        """The training step after which the run ends, once it is known."""
        self._seen = 0
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
        if self._hook is not None:  # the script trains what is no module
            self._end()
        self.loose += 0 if self._in_a_pass() else new
        if self.last is None:
            self.last = self._decide()
        if self.last is not None and self._seen >= self.last and self._hook is None:
            register = self.session.torch.nn.modules.module.register_module_forward_pre_hook
            self._hook = register(self._before_forward)

    def _in_a_pass(self) -> bool:
        """Whether this step belongs to a pass whose loop ends by itself or by us."""
        return any(now.driver == loops.FOR and now.taken for now in self.passes.open.values())

    def _decide(self) -> int | None:
        if self.loose >= _LOOSE_STEPS and not self.passes.cut_training:
            return self._seen
        late = time.monotonic() - self._began - self.session.options.time_limit
        if late < -1.0 or not _on_one_host():
            return None
        file = os.path.join(self.session.folder, "last-step")
        if late >= 0 and not self.session.rank:
            _write(file, str(self._seen + _AHEAD))
        with suppress(OSError, ValueError), open(file) as announced:
            return int(announced.read())
        return None

    def _before_forward(self, module: Any, args: Any) -> None:
        # An evaluation that follows the step is still seen; the next forward that trains is one too many.
        if module.training and self.session.torch.is_grad_enabled():
            self._end()

    @guarded
    def _end(self) -> None:
        self.passes.drain()
        tell_exit(self.session, "shortened", at=self.session.here(), status=0)
        self._meet()
        end_process(0)

    def _meet(self) -> None:
        """Wait until every rank of this host is here: one that leaves breaks the others' connections."""
        _write(os.path.join(self.session.folder, f"arrived-{self.session.rank}"), "")
        expected = self._ranks_here()
        deadline = time.monotonic() + _WAIT
        while time.monotonic() < deadline and _arrived(self.session.folder) < expected:
            time.sleep(0.02)

    def _ranks_here(self) -> int:
        if self.session.rank is None:
            return 1
        told = os.environ.get("LOCAL_WORLD_SIZE") or self.session.options.nproc
        return int(told or self.session.torch.distributed.get_world_size())


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


def _arrived(folder: str) -> int:
    return sum(name.startswith("arrived-") for name in os.listdir(folder))


def _on_one_host() -> bool:
    local, everywhere = os.environ.get("LOCAL_WORLD_SIZE"), os.environ.get("WORLD_SIZE")
    return local is None or local == everywhere


def _write(path: str, text: str) -> None:
    whole = f"{path}.{os.getpid()}"
    with open(whole, "w") as file:
        file.write(text)
    os.replace(whole, path)


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
