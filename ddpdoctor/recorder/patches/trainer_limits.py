"""Lightning's Trainer counts batches: where passes are cut short, it is given its own limits, and reaches their ends.

Else it would neither validate nor save, since it does both after the number of batches that the DataLoader announces.
"""

from __future__ import annotations

from typing import Any

from ..passes import LIMITED
from ..patch import after_call
from ..session import Session

_MODULES = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
_LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches")
_BATCHES = 8
"""Of a pass, where no number is asked for: a Trainer wants it before the first batch shows how long one takes."""
_UPDATES = 2
"""Updates of the optimizer in a pass that trains, at least."""


def install(session: Session) -> None:
    """Watch the Trainer's construction, in a run that is shortened."""
    if not session.options.full:
        limit = after_call(lambda _, args, kwargs: _limit(session, args[0]))
        for module in _MODULES:
            session.patch_later(module, "Trainer.__init__", limit)


def _limit(session: Session, trainer: Any) -> None:
    batches = max(session.options.batches or _BATCHES, _UPDATES * int(trainer.accumulate_grad_batches))
    between = trainer.val_check_interval
    if isinstance(between, int) and between > batches:
        return  # it refuses to validate less often than once in a pass
    for name in _LIMITS:
        given = getattr(trainer, name)
        if given > batches if isinstance(given, int) else given == 1.0:
            setattr(trainer, name, batches)
    session.shared[LIMITED] = batches
