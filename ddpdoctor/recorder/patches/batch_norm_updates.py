"""torch.optim.swa_utils.update_bn: what statistics it leaves in the layers of an averaged model."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..digest import digests, named
from ..events.schema import Event
from ..patch import watch
from ..session import Session
from ..where import Where

_MODULE = "torch.optim.swa_utils"


@dataclass(slots=True)
class BatchNormUpdate(Event):
    """A call of ``update_bn``."""

    begin: float
    end: float
    at: Where | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the model's buffers afterwards."""


def install(session: Session) -> None:
    """Watch update_bn once it is imported."""

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        model = args[1] if len(args) > 1 else kwargs.get("model")
        return None if model is None else (model, time.monotonic())

    def end(begun: Any, _: Any, error: BaseException | None) -> None:
        if error is not None:
            return
        model, began = begun
        buffers = [(name, buffer) for name, buffer in model.named_buffers() if buffer.is_floating_point()]
        values = named(
            (name for name, _ in buffers), digests(session.torch, [buffer for _, buffer in buffers])
        )
        session.event(BatchNormUpdate(began, time.monotonic(), session.here(), values))

    make = watch(session.torch, begin, end)
    session.when_imported(_MODULE, lambda: session.patch(sys.modules[_MODULE], "update_bn", make))
