"""Bookkeeping of simulated GPUs: which one is current, which ones are used, and which one a tensor is on.

A tensor's GPU is a mark on its storage, so views share it and it ends with the memory. Where there is no mark the
tensor is on the CPU; during backward, which makes its tensors out of sight, it is on the GPU of the loss.

A function mode lets a script see its tensors there. It sees each torch function of the script, takes GPUs out of its
arguments, runs it, and notes the GPU on what came out: the one that was asked for, else that of the arguments. What a
function of torch calls in turn runs below the mode, on CPU tensors that look like CPU tensors.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._device import _device_constructors

from ..events.process import Device
from ..patch import Args, Kwargs, leave_out
from .replacing import Patches, plain, refuse
from .simulated_hosts import Host

_MARK = "_ddpdoctor_gpu"
CPU = -1
"""The mark of a storage that was put on the CPU on purpose."""


Rule = Callable[[Callable[..., Any], Args, Kwargs], Any]
"""What is done with one torch function: (function, args, kwargs) to its result."""
_modes: Any = torch.overrides


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
        gpus = self.host.gpus()
        gpu = gpus[index] if 0 <= index < len(gpus) else None
        self._record(Device(index, how, None, index < len(gpus), gpu, len(gpus), self.host.variable()))

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
        gpu = getattr(_storage(tensor), _MARK, self.thread.unmarked)
        return None if gpu == CPU else gpu


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Sparse tensors and the wrappers of torch.func have none of their own; parameters of lazy modules hide theirs."""
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def is_on_cpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor was put on the CPU, or made there, for certain: some are made where nobody looks."""
    return getattr(_storage(tensor), _MARK, None) == CPU


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
        if (storage := _storage(value)) is not None and not hasattr(storage, _MARK):
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


class Placement(TorchFunctionMode):
    """Runs torch functions on the CPU and keeps account of the GPUs that they were meant for."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices = devices
        self.rules: dict[Any, Rule] = {}
        self.default: str | None = None
        """The GPU of torch.set_default_device, as the script named it."""
        self._makers = _device_constructors()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rule = self.rules.get(func, self.place)
        try:
            return rule(func, args, kwargs or {})
        except BaseException as error:
            leave_out(error)
            raise

    def place(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a function and mark what it makes."""
        if "device" in kwargs or "pin_memory" in kwargs or (self.default and func in self._makers):
            return self._make(func, args, kwargs)
        gpu = self.gpu_of(args, kwargs)
        result = plain(func, args, kwargs)
        if gpu is None:
            return mark(result, CPU) if self._is_of_the_cpu(func, args) else result
        return self._mark(result, gpu, args)

    def _make(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a function that is told where its result shall be."""
        kwargs = dict(kwargs)
        # Pinned memory needs a driver; on the CPU every memory is as good.
        kwargs.pop("pin_memory", None)
        if (device := kwargs.get("device")) is None and func in self._makers:
            device = self.default
        if (index := self.devices.index_of(device)) is not None:
            kwargs["device"] = "cpu"
            self.devices.use(index)
        elif device is None:
            index = self.gpu_of(args, kwargs)
        result = plain(func, args, kwargs)
        if index is None:
            return mark(result, CPU) if func in self._makers or device is not None else result
        return self._mark(result, index, args)

    def _is_of_the_cpu(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether a function makes its result on the CPU: from nothing, or from what is known to be there."""
        if func in self._makers:
            return True
        tensors = list(_tensors(args))
        return bool(tensors) and all(map(is_on_cpu, tensors))

    def gpu_of(self, args: Args, kwargs: Kwargs) -> int | None:
        of = self.devices.of
        for tensor in _tensors(args):
            if (gpu := of(tensor)) is not None:
                return gpu
        return next((gpu for gpu in map(of, _tensors(kwargs.values())) if gpu is not None), None)

    def _mark(self, result: Any, gpu: int, args: tuple[Any, ...]) -> Any:
        """Mark what is new; what shares the memory of an argument on the CPU stays there."""
        if isinstance(result, (torch.Tensor, tuple, list)):
            for tensor in _tensors(args):
                if tensor is not result and self.devices.of(tensor) is None and tensor.dim():
                    if _share_memory(tensor, result):
                        return result
                elif tensor is result:
                    return result
            mark(result, gpu)
        return result

    def move(self, tensor: torch.Tensor, gpu: int | None, **options: Any) -> torch.Tensor:
        """As Tensor.to: the tensor itself where it is there already, else a copy that is."""
        if gpu is not None:
            self.devices.use(gpu)
        if gpu == self.devices.of(tensor):
            moved = plain(tensor.to, (), options) if options else tensor
        else:
            options = {**options, "dtype": options.get("dtype", tensor.dtype), "copy": True}
            moved = plain(tensor.to, (), options)
        if moved is not tensor:
            mark(moved, CPU if gpu is None else gpu)
        return moved


def mode_stack() -> list[Any]:
    """The function modes of this thread, the innermost last."""
    return _modes._get_current_function_mode_stack()  # type: ignore[no-any-return]


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)) and value and isinstance(value[0], (torch.Tensor, tuple, list)):
            yield from _tensors(value)


def _share_memory(tensor: torch.Tensor, result: Any) -> bool:
    own, other = (_storage(it) if isinstance(it, torch.Tensor) else None for it in (tensor, result))
    return own is not None and other is not None and own._cdata == other._cdata


def cover_threads(placement: Placement, patches: Patches) -> None:
    """Put the mode over this thread, over threads started from now on, and over what backward calls."""
    _modes._push_mode(placement)
    patches.callback(lambda: _leave(placement))
    _follow_threads(placement, patches)
    _follow_backward(placement, patches)
    _follow_saved_tensors(placement, patches)


def _leave(placement: Placement) -> None:
    """Take the mode off the stack, where another thread undoes or the script left modes above it too."""
    stack = mode_stack()
    if placement in stack:
        above = [_modes._pop_mode() for _ in range(len(stack) - stack.index(placement))]
        for mode in reversed(above[:-1]):
            _modes._push_mode(mode)


def _follow_threads(placement: Placement, patches: Patches) -> None:
    """Modes belong to a thread: let each new one begin with ours."""
    start = threading.Thread.start

    def start_rehearsed(thread: threading.Thread) -> None:
        run = thread.run

        def rehearsed() -> None:
            # Thread.run is looked up again here, so the thread does not hold itself alive.
            thread.__dict__.pop("run", None)
            with placement:
                plain(run)

        thread.run = rehearsed  # type: ignore[method-assign]
        start(thread)

    patches.set(threading.Thread, "start", start_rehearsed)


def _follow_backward(placement: Placement, patches: Patches) -> None:
    """Hooks, recomputed checkpoints and custom functions run inside Tensor.backward, below the mode."""
    original = torch.autograd.graph._engine_run_backward

    def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        thread = placement.devices.thread
        before = thread.unmarked
        if placement in mode_stack():
            thread.unmarked = _gpu_below(placement, outputs)
            try:
                return plain(original, (outputs, *args), kwargs)
            finally:
                thread.unmarked = before
        with placement:
            return run_backward(outputs, *args, **kwargs)

    for module in (torch.autograd.graph, torch.autograd):
        patches.set(module, "_engine_run_backward", run_backward)


def _gpu_below(placement: Placement, outputs: Any) -> int | None:
    """The GPU of the loss; an outer backward's where it has no tensor of its own."""
    gpu = next((placement.devices.of(output) for output in _tensors(outputs)), None)
    return placement.devices.thread.unmarked if gpu is None else gpu


def _follow_saved_tensors(placement: Placement, patches: Patches) -> None:
    """Hooks on tensors saved for backward run inside a torch function; what activation checkpoints compare, too."""
    hooks = torch.autograd.graph.saved_tensors_hooks
    original = hooks.__init__

    def init(context: Any, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]) -> None:
        original(context, _under(placement, pack_hook), _under(placement, unpack_hook))

    patches.set(hooks, "__init__", init)
    # A result is saved before it is marked and recomputed after: its device is no sign of anything.
    tests = checkpoint._allowed_determinism_checks_to_fns
    if (default := tests.get("default")) is not None:
        tests["default"] = lambda tensor: {"shape": tensor.shape, "dtype": tensor.dtype}
        patches.callback(lambda: tests.update(default=default))


def _under(placement: Placement, hook: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(hook)
    def run(*args: Any) -> Any:
        if placement in mode_stack():
            return plain(hook, args)
        with placement:
            return plain(hook, args)

    return run
