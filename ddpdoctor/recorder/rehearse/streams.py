"""Streams, events and graphs. The CPU has done everything when a call returns, so there is nothing to wait for."""

from __future__ import annotations

import abc
import importlib
import itertools
import time
from typing import Any

import torch

from .devices import Devices
from .replacing import Note, refuse

_numbers = itertools.count(1)


class Streams:
    """Makes the classes that take the place of torch.cuda.Stream and its like, and knows the current stream."""

    def __init__(self, devices: Devices, note: Note) -> None:
        self._devices = devices
        self._note = note
        self._current: dict[int, Any] = {}
        self._default: dict[int, Any] = {}
        self.Stream = _stream_class(self)
        self.Event = _event_class()
        self.CUDAGraph = _graph_class(note)
        _register(self.Stream, self.Event)

    def device(self, device: Any) -> torch.device:
        """The GPU that a stream is made for."""
        index = self._devices.index_of(device)
        return torch.device("cuda", self._devices.thread.current if index is None else index)

    def default(self, device: Any = None) -> Any:
        where = self.device(device)
        if where.index not in self._default:
            self._default[where.index] = self.Stream(where, _number=0)
        return self._default[where.index]

    def current(self, device: Any = None) -> Any:
        return self._current.get(self.device(device).index) or self.default(device)

    def make_current(self, stream: Any) -> None:
        if stream is not None:
            self._current[stream.device.index] = stream


def _register(stream: type, event: type) -> None:
    """The compiler of older versions refuses classes that are not of its own kinds."""
    kinds = importlib.import_module("torch._streambase")
    for kind, made in ((kinds._StreamBase, stream), (kinds._EventBase, event)):
        if isinstance(kind, abc.ABCMeta):
            kind.register(made)


class _Done:
    """What a stream and an event on the CPU have in common: nothing is outstanding."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Everything is done."""

    def is_capturing(self) -> bool:
        return False


def _stream_class(streams: Streams) -> Any:
    class Stream(_Done):
        """A stream on which everything is done at once."""

        device_type = 1

        def __init__(
            self, device: Any = None, priority: int = 0, _number: int | None = None, **ids: Any
        ) -> None:
            self.device = streams.device(device)
            self.device_index = self.device.index
            self.priority = priority
            self.stream_id = next(_numbers) if _number is None else _number
            self.cuda_stream = self.stream_id

        def wait_event(self, event: Any) -> None:
            """Everything recorded in the event is done."""

        def wait_stream(self, stream: Any) -> None:
            """Everything on the other stream is done."""

        def record_event(self, event: Any = None) -> Any:
            event = streams.Event() if event is None else event
            event.record(self)
            return event

        def __enter__(self) -> Any:
            self._before = streams.current(self.device)
            streams.make_current(self)
            return self

        def __exit__(self, *error: object) -> None:
            streams.make_current(self._before)

        def __repr__(self) -> str:
            return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    return Stream


def _event_class() -> Any:
    class Event(_Done):
        """An event whose time is the clock when it was recorded."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._at: float | None = None

        def record(self, stream: Any = None) -> None:
            self._at = time.perf_counter()

        def wait(self, stream: Any = None) -> None:
            """Everything recorded here is done."""

        def elapsed_time(self, end: Any) -> float:
            """Milliseconds from this event to another, which takes at least one tick of the clock."""
            if self._at is None or end._at is None:
                refuse(RuntimeError("Both events must be recorded before calculating elapsed time."))
            return max(float(end._at - self._at) * 1000.0, 1e-6)

    return Event


def _graph_class(note: Note) -> Any:
    class CUDAGraph:
        """Runs what is captured once; nothing is kept that could run again."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            note("graphs", "CUDA graphs are not captured: the capture runs once, and a replay does nothing")

        def _nothing(self, *args: Any, **kwargs: Any) -> None:
            """There is no graph."""

        capture_begin = capture_end = replay = reset = enable_debug_mode = debug_dump = _nothing

        def pool(self) -> tuple[int, int]:
            return (0, 0)

    return CUDAGraph
