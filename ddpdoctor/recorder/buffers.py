"""Digests of the buffers of wrapped modules, at moments when they count."""

from __future__ import annotations

import time
from typing import Any

from .digest import digests
from .digest import named as by_name
from .events.training import Buffers
from .session import Session
from .training import Training, Wrapper
from .where import Where


def tell_buffers(
    session: Session, when: str, *, at: Where | None = None, only: Wrapper | None = None
) -> None:
    """Write down the digests of all buffers, or of one wrapper's; ``when`` is evaluation, save or end."""
    training = Training.of(session)
    for wrapper, ddp in training.living():
        if only is None or wrapper is only:
            named = [(name.replace("_orig_mod.", ""), buffer) for name, buffer in ddp.module.named_buffers()]
            if named and not (when == "end" and _is_busy(training.torch, named)):
                values = digests(training.torch, [buffer for _, buffer in named])
                of_buffers = by_name((name for name, _ in named), values)
                session.event(Buffers(wrapper.index, when, time.monotonic(), of_buffers, at))


def _is_busy(torch: Any, named: list[tuple[str, Any]]) -> bool:
    """Whether reading would wait for a device, which at the end may be for ever."""
    return (
        any(buffer.device.type == "cuda" for _, buffer in named) and not torch.cuda.current_stream().query()
    )
