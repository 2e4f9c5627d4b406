"""Calls of torch.manual_seed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..guard import guarded
from ..session import Session

_MOST = 1000


def install(session: Session) -> None:
    """Watch torch.manual_seed."""
    session.patch_function(("torch.random", "torch"), "manual_seed", functools.partial(_watch, session, [0]))


def _watch(session: Session, count: list[int], original: Callable[..., Any]) -> Callable[..., Any]:
    @guarded
    def tell(seed: Any) -> None:
        count[0] += 1
        in_worker = session.torch.utils.data.get_worker_info() is not None
        if count[0] <= _MOST and not in_worker:
            session.event("random.seed", at=session.here(), seed=str(int(seed)))

    @functools.wraps(original)
    def manual_seed(seed: Any) -> Any:
        result = original(seed)
        tell(seed)
        return result

    return manual_seed
