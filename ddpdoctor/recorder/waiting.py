"""For how long the thread that trains waits: for other ranks, in a collective, and for a CPU."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .patch import own_time

if TYPE_CHECKING:
    from .training import Training

_SCHEDULED = "/proc/thread-self/schedstat"
_OF_THREAD = "/proc/self/task/{}/schedstat"


class CpuQueue:
    """For how long a thread could run and no CPU was free."""

    def __init__(self) -> None:
        self._file = -1
        """Left open: to open it takes ten times as long as to read it. Never closed, as the script may have done that
        and have another file of this number."""
        self._of = 0, 0

    def seconds(self) -> float:
        """Of this thread, so far; 0 where the system does not tell."""
        thread = os.getpid(), threading.get_ident()
        try:
            if self._of[0] != thread[0]:
                self._file, self._of = os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC), thread
            if self._of == thread:
                return _read(self._file)
            with open(_SCHEDULED, "rb") as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return 0.0


def queue_of_thread(thread: int) -> Callable[[], float]:
    """What tells the same of another thread, to which it has come by its number in the system."""
    file = -1
    with suppress(OSError):
        file = os.open(_OF_THREAD.format(thread), os.O_RDONLY | os.O_CLOEXEC)

    def seconds() -> float:
        with suppress(OSError, ValueError, IndexError):
            return _read(file)
        return 0.0

    return seconds


def _read(file: int) -> float:
    return int(os.pread(file, 100, 0).split()[1]) / 1e9


class Waits:
    """Calls in which a rank waits for others; of their time, what the thread did not work itself is waiting."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.queue = CpuQueue()
        self.total = self.queued = 0.0
        """Seconds so far without work of its own, and those of them without a CPU to work on."""
        self._thread: int | None = None
        """The thread that is in such a call."""
        self._began = (0.0, 0.0, 0.0)

    @property
    def open(self) -> bool:
        return self._thread is not None

    def is_training_thread(self) -> bool:
        """Whether this is the thread that trains, as far as one has been seen to."""
        return self._training.session.thread in (None, threading.get_ident())

    def idle(self) -> float:
        """Seconds so far in which the thread that trains, and asks, waited for others or for a CPU, or was ours."""
        return self.total + self.queue.seconds() - self.queued + own_time.total()

    def begin(self) -> bool:
        """A call begins; False where it is inside of another one, in another thread, or in a step that is not told."""
        if self._thread is not None or self._training.quiet or not self.is_training_thread():
            return False
        self._thread = threading.get_ident()
        self._began = time.monotonic(), time.thread_time(), self.queue.seconds()
        return True

    def end(self) -> None:
        """The call for which :meth:`begin` was True is over, with an exception or without."""
        began, worked, queued = self._began
        if self._thread == threading.get_ident():  # and not a child of a fork inside the call
            queued = self.queue.seconds() - queued
            self.queued += queued
            self.total += max(queued, time.monotonic() - began - (time.thread_time() - worked))
        self._thread = None
