"""Bookkeeping of simulated GPUs: which one is current, which ones are used, and which one a tensor is on.

A tensor's GPU is a mark on its storage, so views share it and it ends with the memory. Where there is no mark the
tensor is on the CPU; during backward, which makes its tensors out of sight, it is on the GPU of the loss.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from ..events.process import Device
from .replacing import refuse
from .simulated_hosts import Host

_MARK = "_ddpdoctor_gpu"
CPU = -1
"""The mark of a storage that was put on the CPU on purpose."""


class _PerThread(threading.local):
    """CUDA keeps a current device for each thread, and backward runs in the thread that asked for it."""

    current = 0
    unmarked: int | None = None


class Devices:
    """The simulated GPUs of this process."""

    def __init__(self, record: Callable[[Device], None], host: Host) -> None:
        self.host = host
        self.thread = _PerThread()
        self._record = record
        self._set: set[int] = set()
        self._used: set[int] = set()
        self._is_forked = False
        os.register_at_fork(after_in_child=self._leave_behind)

    def _leave_behind(self) -> None:
        """In a child that is forked off: it has no use of the GPUs that its parent has begun to use."""
        self._is_forked = bool(self._set or self._used)

    def count(self) -> int:
        """As torch.cuda.device_count."""
        return len(self.host.gpus())

    def index_of(self, device: Any) -> int | None:
        """The index of a GPU that a script names in any of the usual ways; None where it is no GPU."""
        if isinstance(device, bool) or device is None:
            return None
        if isinstance(device, int):
            return device
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device) and device.type == "cuda":
            return self.thread.current if device.index is None else device.index
        return None

    def make_current(self, index: int) -> None:
        """As torch.cuda.set_device; raises what CUDA raises where the host has no such GPU."""
        self._refuse_a_fork()
        self.host.take()
        # The thread that pins memory selects a device too, which no line of the script asked for.
        if index not in self._set and threading.current_thread() is threading.main_thread():
            self._set.add(index)
            self._tell("set", index)
        self._in_range(index)
        self.thread.current = index

    def exchange(self, index: int) -> int:
        """Make a GPU current for a while; answers which one was. Negative: nothing changes."""
        before = self.thread.current
        if index >= 0:
            self._in_range(index)
            self.thread.current = index
        return before

    def use(self, index: int) -> int:
        """Something is put on this GPU; raises what CUDA raises where the host has no such GPU."""
        self._refuse_a_fork()
        if index not in self._used:
            self.host.take()
            self._used.add(index)
            self._tell("use", index)
        self._in_range(index)
        return index

    def _tell(self, how: str, index: int) -> None:
        count = self.count()
        variable = self.host.variable()
        self._record(Device(index, how, None, index < count, self._gpu(index), count, variable))

    def _gpu(self, index: int) -> str | None:
        """Which of the host's GPUs this is, where CUDA_VISIBLE_DEVICES renames them."""
        gpus = self.host.gpus()
        return gpus[index] if 0 <= index < len(gpus) else None

    def _refuse_a_fork(self) -> None:
        if self._is_forked:
            refuse(
                RuntimeError(
                    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use "
                    "the 'spawn' start method"
                )
            )

    def _in_range(self, index: int) -> None:
        if not 0 <= index < self.count():
            refuse(invalid_ordinal(index, self.count()))

    def of(self, tensor: torch.Tensor) -> int | None:
        """The GPU that a tensor is on; None: on the CPU."""
        try:
            gpu = getattr(tensor.untyped_storage(), _MARK, self.thread.unmarked)
        except (NotImplementedError, RuntimeError):
            # Sparse tensors and the wrappers of torch.func have no storage of their own.
            return self.thread.unmarked
        return None if gpu == CPU else gpu


def is_on_cpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor was put on the CPU, or made there, for certain: some are made where nobody looks."""
    try:
        return getattr(tensor.untyped_storage(), _MARK, None) == CPU
    except (NotImplementedError, RuntimeError):
        return False


def invalid_ordinal(index: int, count: int) -> Exception:
    """What CUDA raises for a device that the host does not have."""
    kind = getattr(torch, "AcceleratorError", RuntimeError)
    return kind(
        "CUDA error: invalid device ordinal\n"
        "GPU device may be out of range, do you have enough GPUs?\n"
        f"(rehearsal: cuda:{index} was asked for on a host with {count} simulated GPUs)"
    )


def mark(value: Any, gpu: int) -> Any:
    """Note that tensors are on a GPU (or the CPU), where their storage is not marked yet; answers the value."""
    if isinstance(value, torch.Tensor):
        try:
            storage = value.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return value
        if not hasattr(storage, _MARK):
            setattr(storage, _MARK, gpu)
    elif isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        for element in value:
            mark(element, gpu)
    return value


def mark_storage(storage: Any, gpu: int) -> Any:
    """Put a storage on a GPU, whatever its mark was; answers it."""
    setattr(getattr(storage, "_untyped_storage", storage), _MARK, gpu)
    return storage


def storage_gpu(storage: Any) -> int | None:
    """The GPU of a storage; None: on the CPU."""
    gpu = getattr(getattr(storage, "_untyped_storage", storage), _MARK, None)
    return None if gpu == CPU else gpu
