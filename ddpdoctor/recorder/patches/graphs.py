"""CUDA graphs: a training step that is captured into one is counted, and nothing of it is looked at."""

from __future__ import annotations

from ..patch import Args, Kwargs, watch
from ..session import Session


def install(session: Session) -> None:
    """Watch where a capture begins."""

    def begin(_: Args, __: Kwargs) -> None:
        session.detailed = False

    session.patch(session.torch.cuda.CUDAGraph, "capture_begin", watch(session.torch, begin))
