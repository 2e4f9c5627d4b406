"""What a framework gathers for a metric, without the samples that it repeats to even out the batches."""

from __future__ import annotations

import functools
import sys
import time
from typing import TYPE_CHECKING, Any

from ..events.training import GatheredForMetrics
from ..patch import watch

if TYPE_CHECKING:
    from ..session import Session

_MODULE = "accelerate.accelerator"


def install(session: Session) -> None:
    """Watch accelerate's gather_for_metrics, once the script has imported it."""
    session.when_imported(_MODULE, functools.partial(_watch, session))


def _watch(session: Session) -> None:
    lines: set[object] = set()

    def tell(args: Any, kwargs: Any) -> None:
        at = session.here()
        if at not in lines:
            lines.add(at)
            session.event(GatheredForMetrics(time.monotonic(), at))

    accelerator = sys.modules[_MODULE].Accelerator
    session.patch(accelerator, "gather_for_metrics", watch(session.torch, tell, lambda *_: None))
