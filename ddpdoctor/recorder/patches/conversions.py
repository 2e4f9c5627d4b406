"""SyncBatchNorm.convert_sync_batchnorm: what is converted, and whether it was wrapped by then."""

from __future__ import annotations

import time
from typing import Any

from ..events.training import Conversion
from ..patch import watch
from ..session import Session
from ..training import Training


class _Conversions:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.training = Training.of(session)
        self.depth = 0
        """It calls itself for every child; only the outermost call is the script's."""

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Look at the module before it is converted."""
        self.depth += 1
        module = args[0] if args else kwargs.get("module")
        if self.depth > 1 or module is None:
            return {}
        nn = self.session.torch.nn
        norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
        layers = sum(not isinstance(norm, nn.SyncBatchNorm) for norm in norms)
        return {"layers": layers, "wrapped": self._is_wrapped(module)}

    def _is_wrapped(self, module: Any) -> bool:
        return any(module is part for _, ddp in self.training.living() for part in ddp.modules())

    def end(self, begun: dict[str, Any], _: Any, error: BaseException | None) -> None:
        """Write it down."""
        self.depth -= 1
        if begun and error is None:
            self.session.event(Conversion(time.monotonic(), self.session.here(), **begun))


def install(session: Session) -> None:
    """Watch the conversion, where this torch can train distributed at all."""
    if session.torch.distributed.is_available():
        conversions = _Conversions(session)
        make = watch(session.torch, conversions.begin, conversions.end)
        session.patch(session.torch.nn.SyncBatchNorm, "convert_sync_batchnorm", make)
