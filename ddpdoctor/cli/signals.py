"""How signals end a command."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

_Handler = Callable[[int, FrameType | None], object]


@contextlib.contextmanager
def handled(handler: _Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Have these signals handled; one that is ignored, as SIGHUP under nohup, stays ignored."""
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def stopped_by_signals() -> contextlib.AbstractContextManager[None]:
    """SIGTERM and SIGHUP end a command in order, as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    return handled(stop, signal.SIGTERM, signal.SIGHUP)
