"""The function mode that lets a script see its tensors on simulated GPUs.

Every tensor is an ordinary CPU tensor. The mode sees each torch function of the script, takes GPUs out of its
arguments, runs it, and notes the GPU on what came out: the one that was asked for, else that of the arguments. What a
function of torch calls in turn runs below the mode, on CPU tensors that look like CPU tensors.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._device import _device_constructors

from ..patch import leave_out
from .devices import CPU, Devices, is_on_cpu, mark
from .replacing import Patches, plain

Rule = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""What is done with one torch function: (function, args, kwargs) to its result."""


_modes: Any = torch.overrides


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

    def place(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function and mark what it makes."""
        if "device" in kwargs or "pin_memory" in kwargs or (self.default and func in self._makers):
            return self._make(func, args, kwargs)
        gpu = self.gpu_of(args, kwargs)
        result = plain(func, args, kwargs)
        if gpu is None:
            return mark(result, CPU) if self._is_of_the_cpu(func, args) else result
        return self._mark(result, gpu, args)

    def _make(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function that is told where its result shall be."""
        kwargs = dict(kwargs)
        # Pinned memory needs a driver; on the CPU every memory is as good.
        kwargs.pop("pin_memory", None)
        device = kwargs.get("device")
        if device is None and func in self._makers:
            device = self.default
        index = self.devices.index_of(device)
        if index is not None:
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

    def gpu_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        """The first GPU among the arguments."""
        of = self.devices.of
        for tensor in _tensors(args):
            gpu = of(tensor)
            if gpu is not None:
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
    try:
        return isinstance(result, torch.Tensor) and (
            result.untyped_storage()._cdata == tensor.untyped_storage()._cdata
        )
    except (NotImplementedError, RuntimeError):
        return False


def install(placement: Placement, patches: Patches) -> None:
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
    default = tests.get("default")
    if default is not None:
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
