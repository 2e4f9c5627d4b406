"""load_state_dict of modules, optimizers, schedulers and GradScalers: what it took, and what it left out."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..checkpoints import Checkpoints
from ..events.files import StateLoad
from ..guard import guarded
from ..traceback_frames import leave_out

if TYPE_CHECKING:
    from ..session import Session

_MOST_NAMES = 2000


def install(session: Session) -> None:
    """Watch load_state_dict of everything in torch that a checkpoint restores."""
    watch = _Watch(session)
    for kind, owner in _owners(session.torch):
        session.patch(owner, "load_state_dict", functools.partial(watch.wrap, kind))


def _owners(torch: Any) -> Iterable[tuple[str, Any]]:
    """Those classes that define it themselves."""
    yield "module", torch.nn.Module
    yield "optimizer", torch.optim.Optimizer
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is not None:
        yield "scaler", scaler
    schedulers = sys.modules.get("torch.optim.lr_scheduler")
    for var in vars(schedulers).values():
        if isinstance(var, type) and "load_state_dict" in vars(var):
            yield "scheduler", var


class _Watch:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.checkpoints = Checkpoints.of(session)
        self.depth = 0

    def wrap(self, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_state_dict(owner: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            # One that holds others, a SequentialLR for instance, counts once.
            self.depth += 1
            error, result = None, None
            try:
                result = original(owner, state_dict, *args, **kwargs)
            except BaseException as raised:
                leave_out(raised)
                error = raised
                raise
            finally:
                self.depth -= 1
                if not self.depth:
                    strict = bool(args[0] if args else kwargs.get("strict", True))
                    self.tell(kind, owner, state_dict, strict, result, error)
            return result

        return load_state_dict

    @guarded
    def tell(
        self, kind: str, owner: Any, state: Any, strict: bool, result: Any, error: BaseException | None
    ) -> None:
        """Write it down."""
        missing, unexpected = _left_out(kind, owner, state, result)
        entries = state.get("state", state) if kind == "optimizer" else state
        event = StateLoad(
            kind,
            type(owner).__name__,
            self.session.here(),
            time.monotonic(),
            strict,
            matched=0 if error else len(entries) - len(unexpected),
            missing=tuple(missing[:_MOST_NAMES]),
            unexpected=tuple(unexpected[:_MOST_NAMES]),
            wrapper=self._wrapper(owner) if kind == "module" else None,
            load=self.checkpoints.came_from(state),
            error=None if error is None else f"{type(error).__name__}: {error}"[:2000],
        )
        self.session.event(event)

    def _wrapper(self, module: Any) -> int | None:
        training = self.session.shared.get("training")
        for wrapper, ddp in training.living() if training is not None else ():
            if any(part is module for part in ddp.modules()):
                return int(wrapper.index)
        return None


def _left_out(kind: str, owner: Any, state: Any, result: Any) -> tuple[list[str], list[str]]:
    """The missing and the unexpected keys."""
    if kind != "module" or not isinstance(state, Mapping):
        return [], []
    if hasattr(result, "missing_keys"):
        return list(result.missing_keys), list(result.unexpected_keys)
    # It raised. Not by state_dict(), whose hooks are the script's.
    parameters = [name for name, _ in owner.named_parameters(remove_duplicate=False)]
    buffers = [name for name, _ in owner.named_buffers(remove_duplicate=False)]
    missing = [name for name in (*parameters, *buffers) if name not in state]
    return missing, [key for key in state if key not in {*parameters, *buffers}]
