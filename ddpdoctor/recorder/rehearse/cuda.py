"""What torch.cuda, torch.backends and torch.version say, answered for simulated GPUs.

Where they can be, the functions of torch._C that torch.cuda and torch.accelerator stand on are replaced, rather than
the hundreds of public functions above: these keep their arguments, defaults and errors, in every version of torch.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from .devices import Devices, Placement
from .replacing import Note, Patches, refuse
from .streams import Streams

_CAPABILITY = (8, 0)
_NAME = "NVIDIA A100-SXM4-80GB (rehearsal)"
_MEMORY = 80 * 2**30
"""Of a simulated GPU."""
_NOTHING_TO_DO = """
    _cuda_init _cuda_synchronize _cuda_emptyCache _cuda_ipc_collect _cuda_sleep _cuda_set_sync_debug_mode
    _host_emptyCache _cuda_resetAccumulatedMemoryStats _cuda_resetPeakMemoryStats _cuda_resetPeakHostMemoryStats
    _cuda_resetAccumulatedHostMemoryStats _cuda_setMemoryFraction _cuda_record_memory_history
    _cuda_record_memory_history_legacy _accelerator_synchronizeDevice _accelerator_emptyCache
    _accelerator_emptyHostCache _accelerator_resetAccumulatedStats _accelerator_resetPeakStats
"""
"""What a GPU does and a CPU has done already."""
_UTILIZATION = "utilization memory_usage temperature power_draw clock_rate device_memory_used"
_STATISTICS = """
    allocated_bytes reserved_bytes active_bytes inactive_split_bytes requested_bytes allocation segment active
    inactive_split
"""
_COUNTS = "num_alloc_retries num_ooms num_sync_all_streams max_split_size num_device_alloc num_device_free"


def install(placement: Placement, streams: Streams, patches: Patches, note: Note) -> None:
    """Have torch.cuda answer as on a machine with GPUs."""
    _bindings(placement.devices, streams, patches)
    _presence(placement.devices, patches)
    _streams(streams, patches)
    _tools(patches)
    _graphs(streams, patches, note)
    _default_device(placement, patches)


def _bindings(devices: Devices, streams: Streams, patches: Patches) -> None:
    """torch.accelerator came with torch 2.6; what this torch lacks nobody asks for."""
    gpu = torch.device("cuda")

    def ids(stream: Any) -> tuple[int, int, int]:
        return stream.stream_id, stream.device_index, stream.device_type

    patches.add(
        torch._C,
        **dict.fromkeys(_NOTHING_TO_DO.split(), lambda *args, **kwargs: None),
        _has_cuda=True,
        _cuda_getDeviceCount=devices.count,
        _cuda_getDevice=lambda: devices.thread.current,
        _cuda_setDevice=devices.make_current,
        _cuda_exchangeDevice=devices.exchange,
        _cuda_maybeExchangeDevice=devices.exchange,
        _cuda_canDeviceAccessPeer=lambda first, second: True,
        _cuda_isCurrentStreamCapturing=lambda: False,
        _cuda_getArchFlags=lambda: "sm_80",
        _cuda_getCurrentStream=lambda index: ids(streams.current(index)),
        _cuda_getDefaultStream=lambda index: ids(streams.default(index)),
        _cuda_getCurrentRawStream=lambda index: streams.current(index).cuda_stream,
        _cuda_get_sync_debug_mode=lambda: 0,
        _graph_pool_handle=lambda: (0, 1),
        _nccl_version=lambda: (2 << 32) | (27 << 16) | 5,
        _nccl_version_suffix=lambda: b"",
        _cuda_memoryStats=_memory_stats,
        _cuda_hostMemoryStats=_memory_stats,
        _cuda_getMemoryFraction=lambda device: 1.0,
        _cuda_getAllocatorBackend=lambda: "native",
        _cuda_memorySnapshot=lambda *args: {"segments": [], "device_traces": [], "allocator_settings": {}},
        _get_accelerator=lambda *args: gpu,
        _accelerator_getAccelerator=lambda: gpu,
        _accelerator_getDeviceIndex=lambda: devices.thread.current,
        _accelerator_setDeviceIndex=devices.make_current,
        _accelerator_exchangeDevice=devices.exchange,
        _accelerator_maybeExchangeDevice=devices.exchange,
        _accelerator_getStream=streams.current,
        _accelerator_setStream=streams.make_current,
        _accelerator_isAllocatorInitialized=lambda: True,
        _accelerator_getDeviceStats=_memory_stats,
        _accelerator_getMemoryInfo=_free_and_total,
        _accelerator_getDeviceCapability=lambda index: {"supported_dtypes": set()},
    )


def _presence(devices: Devices, patches: Patches) -> None:
    """What their own Python does not ask the bindings."""
    patches.add(
        torch.cuda,
        **dict.fromkeys(_UTILIZATION.split(), lambda device=None: 0),
        is_available=lambda: devices.count() > 0,
        device_count=devices.count,
        mem_get_info=_free_and_total,
        _lazy_init=lambda: None,
        _exchange_device=devices.exchange,
        _maybe_exchange_device=devices.exchange,
        _initialized=True,
        _get_device_properties=lambda index: _properties(devices, index),
        get_device_properties=lambda device=None: _properties(devices, device),
        is_current_stream_capturing=lambda: False,
        get_arch_list=lambda: ["sm_80"],
    )
    # Seeding asks for the count under a name of its own.
    patches.set(torch.cuda.random, "device_count", devices.count)
    patches.set(torch.cuda.memory, "mem_get_info", _free_and_total)
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
    nvtx = dict.fromkeys(("rangePushA", "rangePop", "rangeStartA", "rangeEnd", "markA"), lambda *args: 0)
    patches.set(torch.cuda.nvtx, "_nvtx", SimpleNamespace(**nvtx))
    runtime = SimpleNamespace(
        cudaError=SimpleNamespace(success=0),
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaMemGetInfo=_free_and_total,
    )
    patches.set(torch.cuda, "_cudart", runtime)
    for module in (torch.cuda, torch.cuda.profiler):
        patches.set(module, "cudart", lambda: runtime)


def _graphs(streams: Streams, patches: Patches, note: Note) -> None:
    def make_graphed_callables(callables: Any, *args: Any, **kwargs: Any) -> Any:
        note("graphed callables", "torch.cuda.make_graphed_callables: nothing is captured, calls run eagerly")
        return callables

    @contextlib.contextmanager
    def graph(cuda_graph: Any, *args: Any, **kwargs: Any) -> Any:
        yield

    for module in (torch.cuda, torch.cuda.graphs):
        patches.add(
            module, CUDAGraph=streams.CUDAGraph, graph=graph, make_graphed_callables=make_graphed_callables
        )


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


def _properties(devices: Devices, device: Any = None) -> SimpleNamespace:
    """As torch.cuda.get_device_properties: every simulated GPU is of one kind."""
    index = devices.index_of(device)
    if index is not None and not 0 <= index < devices.count():
        refuse(AssertionError("Invalid device id"))
    return SimpleNamespace(
        name=_NAME,
        major=_CAPABILITY[0],
        minor=_CAPABILITY[1],
        total_memory=_MEMORY,
        multi_processor_count=108,
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=166912,
        shared_memory_per_multiprocessor=167936,
        warp_size=32,
        L2_cache_size=40 * 2**20,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid=f"GPU-00000000-0000-0000-0000-{0 if index is None else index:012d}",
        gcnArchName="",
    )


# -- memory: the numbers of this process, because no GPU has any --------------------------------------------


def _used() -> int:
    """The memory that this process holds, in bytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return _peak()
    return pages * resource.getpagesize()


def _peak() -> int:
    """The most memory that this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _memory_stats(device: int = 0) -> dict[str, Any]:
    """As torch.cuda.memory_stats before it is flattened."""
    numbers = {"current": _used(), "peak": _peak(), "allocated": _peak(), "freed": max(0, _peak() - _used())}
    nothing = dict.fromkeys(numbers, 0)
    pools = {"all": numbers, "small_pool": nothing, "large_pool": numbers}
    return {
        **dict.fromkeys(_STATISTICS.split(), pools),
        **dict.fromkeys(("oversize_allocations", "oversize_segments"), nothing),
        **dict.fromkeys(_COUNTS.split(), 0),
    }


def _free_and_total(device: Any = None) -> tuple[int, int]:
    return max(0, _MEMORY - _used()), _MEMORY
