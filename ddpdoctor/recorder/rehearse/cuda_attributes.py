"""What torch.cuda, torch.backends and torch.version say where their own Python does not reach the floor."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from . import cuda_bindings, memory_statistics
from .device_mode import Placement
from .devices import Devices
from .replaced_attributes import Patches
from .streams import Streams


def install(
    placement: Placement, streams: Streams, patches: Patches, note: Callable[[str, str], None]
) -> None:
    """Have torch.cuda answer as on a machine with GPUs."""
    devices = placement.devices
    _presence(devices, patches)
    _streams(streams, patches)
    _tools(patches)
    _graphs(streams, patches, note)
    _default_device(placement, patches)


def _presence(devices: Devices, patches: Patches) -> None:
    patches.add(
        torch.cuda,
        is_available=lambda: devices.count() > 0,
        device_count=devices.count,
        _lazy_init=lambda: None,
        _exchange_device=devices.exchange,
        _maybe_exchange_device=devices.exchange,
        _initialized=True,
        _get_device_properties=lambda index: cuda_bindings.properties(devices, index),
        get_device_properties=lambda device=None: cuda_bindings.properties(devices, device),
        is_current_stream_capturing=lambda: False,
        get_arch_list=lambda: ["sm_80"],
    )
    # Seeding asks for the count under a name of its own.
    patches.set(torch.cuda.random, "device_count", devices.count)
    for module in (torch.cuda, torch.cuda.memory):
        patches.set(module, "mem_get_info", memory_statistics.free_and_total)
    for name in (
        "utilization",
        "memory_usage",
        "temperature",
        "power_draw",
        "clock_rate",
        "device_memory_used",
    ):
        patches.set(torch.cuda, name, lambda device=None: 0)
    cudnn: Any = torch.backends.cudnn
    patches.set(torch.version, "cuda", torch.version.cuda or "12.8")
    patches.add(cudnn.m, is_available=lambda: True, version=lambda: 90100)


def _streams(streams: Streams, patches: Patches) -> None:
    for module in (torch.cuda, torch.cuda.streams, torch):
        patches.add(module, Stream=streams.Stream, Event=streams.Event)
    patches.add(
        torch.cuda,
        current_stream=streams.current,
        default_stream=streams.default,
        set_stream=streams.make_current,
        ExternalStream=streams.Stream,
    )


def _tools(patches: Patches) -> None:
    """NVTX ranges and the CUDA profiler mark what no GPU does here."""
    nothing = SimpleNamespace(
        rangePushA=lambda text: 0,
        rangePop=lambda: 0,
        rangeStartA=lambda text: 0,
        rangeEnd=lambda number: None,
        markA=lambda text: None,
    )
    patches.set(torch.cuda.nvtx, "_nvtx", nothing)
    runtime = SimpleNamespace(
        cudaError=SimpleNamespace(success=0),
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaMemGetInfo=memory_statistics.free_and_total,
    )
    patches.set(torch.cuda, "_cudart", runtime)
    for module in (torch.cuda, torch.cuda.profiler):
        patches.set(module, "cudart", lambda: runtime)


def _graphs(streams: Streams, patches: Patches, note: Callable[[str, str], None]) -> None:
    def make_graphed_callables(callables: Any, *args: Any, **kwargs: Any) -> Any:
        note("graphed callables", "torch.cuda.make_graphed_callables: nothing is captured, calls run eagerly")
        return callables

    @contextlib.contextmanager
    def graph(cuda_graph: Any, *args: Any, **kwargs: Any) -> Any:
        yield

    for module in (torch.cuda, torch.cuda.graphs):
        patches.add(module, CUDAGraph=streams.CUDAGraph, graph=graph)
        patches.set(module, "make_graphed_callables", make_graphed_callables)


def _default_device(placement: Placement, patches: Patches) -> None:
    """torch.set_default_device pushes a mode below ours, where it would name a GPU to the CPU's functions."""
    set_plain, get_plain = torch.set_default_device, torch.get_default_device
    set_type = torch.set_default_tensor_type

    def set_default_device(device: Any) -> None:
        gpu = device is not None and placement.devices.index_of(device) is not None
        placement.default = str(torch.device(device)) if gpu else None
        set_plain(None if gpu else device)

    def get_default_device() -> torch.device:
        if placement.default is None:
            return get_plain()
        return torch.device("cuda", placement.devices.index_of(placement.default) or 0)

    def set_default_tensor_type(kind: Any) -> None:
        name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
        set_default_device("cuda" if ".cuda." in name else None)
        set_type(f"torch.{name.rsplit('.', 1)[-1]}")

    patches.add(
        torch,
        set_default_device=set_default_device,
        get_default_device=get_default_device,
        set_default_tensor_type=set_default_tensor_type,
    )
