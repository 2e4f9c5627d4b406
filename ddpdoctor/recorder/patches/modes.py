"""Where the user put a wrapped model into eval mode."""

from __future__ import annotations

from typing import Any

from ..patch import after_call
from ..session import Session
from ..training import Training
from .forward import caller_of


def install(session: Session) -> None:
    """Watch Module.train, by which Module.eval goes too."""
    training = Training.of(session)

    def look(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        mode = args[1] if len(args) > 1 else kwargs.get("mode", True)
        if mode or training.torch.compiler.is_compiling():
            return
        for wrapper, ddp in training.living():
            if args[0] is ddp or args[0] is vars(ddp).get("_modules", {}).get("module"):
                wrapper.eval_at = caller_of(session, args[0])

    session.patch(session.torch.nn.Module, "train", after_call(look))
