"""The functions of torch._C that torch.cuda and torch.accelerator stand on, answered for simulated GPUs.

Replacing the floor rather than the hundreds of public functions above keeps these as they are, in every version of
torch: their arguments, their defaults, their errors.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from . import memory_statistics
from .devices import Devices
from .plain_calls import refuse
from .replaced_attributes import Patches
from .streams import Streams

CAPABILITY = (8, 0)
NAME = "NVIDIA A100-SXM4-80GB (rehearsal)"


def install(devices: Devices, streams: Streams, patches: Patches) -> None:
    """Put the floor in place."""
    _cuda(devices, streams, patches)
    _accelerator(devices, streams, patches)


def _cuda(devices: Devices, streams: Streams, patches: Patches) -> None:
    patches.add(
        torch._C,
        _has_cuda=True,
        _cuda_init=_nothing,
        _cuda_getDeviceCount=devices.count,
        _cuda_getDevice=lambda: devices.thread.current,
        _cuda_setDevice=devices.make_current,
        _cuda_exchangeDevice=devices.exchange,
        _cuda_maybeExchangeDevice=devices.exchange,
        _cuda_canDeviceAccessPeer=lambda first, second: True,
        _cuda_synchronize=_nothing,
        _cuda_emptyCache=_nothing,
        _cuda_ipc_collect=_nothing,
        _cuda_sleep=_nothing,
        _cuda_isCurrentStreamCapturing=lambda: False,
        _cuda_getArchFlags=lambda: "sm_80",
        _cuda_getCurrentStream=lambda index: _ids(streams.current(index)),
        _cuda_getDefaultStream=lambda index: _ids(streams.default(index)),
        _cuda_getCurrentRawStream=lambda index: streams.current(index).cuda_stream,
        _cuda_get_sync_debug_mode=lambda: 0,
        _cuda_set_sync_debug_mode=_nothing,
        _graph_pool_handle=lambda: (0, 1),
        _host_emptyCache=_nothing,
        _nccl_version=lambda: (2 << 32) | (27 << 16) | 5,
        _nccl_version_suffix=lambda: b"",
    )
    _memory(patches)


def _memory(patches: Patches) -> None:
    patches.add(
        torch._C,
        _cuda_memoryStats=memory_statistics.stats,
        _cuda_resetAccumulatedMemoryStats=_nothing,
        _cuda_resetPeakMemoryStats=_nothing,
        _cuda_hostMemoryStats=memory_statistics.stats,
        _cuda_resetPeakHostMemoryStats=_nothing,
        _cuda_resetAccumulatedHostMemoryStats=_nothing,
        _cuda_setMemoryFraction=_nothing,
        _cuda_getMemoryFraction=lambda device: 1.0,
        _cuda_getAllocatorBackend=lambda: "native",
        _cuda_memorySnapshot=lambda *args: {"segments": [], "device_traces": [], "allocator_settings": {}},
        _cuda_record_memory_history=_nothing,
        _cuda_record_memory_history_legacy=_nothing,
    )


def _accelerator(devices: Devices, streams: Streams, patches: Patches) -> None:
    """torch.accelerator came with torch 2.6; what this torch lacks nobody asks for."""
    gpu = torch.device("cuda")
    patches.add(
        torch._C,
        _get_accelerator=lambda *args: gpu,
        _accelerator_getAccelerator=lambda: gpu,
        _accelerator_getDeviceIndex=lambda: devices.thread.current,
        _accelerator_setDeviceIndex=devices.make_current,
        _accelerator_exchangeDevice=devices.exchange,
        _accelerator_maybeExchangeDevice=devices.exchange,
        _accelerator_getStream=streams.current,
        _accelerator_setStream=streams.make_current,
        _accelerator_synchronizeDevice=_nothing,
        _accelerator_isAllocatorInitialized=lambda: True,
        _accelerator_emptyCache=_nothing,
        _accelerator_emptyHostCache=_nothing,
        _accelerator_getDeviceStats=memory_statistics.stats,
        _accelerator_resetAccumulatedStats=_nothing,
        _accelerator_resetPeakStats=_nothing,
        _accelerator_getMemoryInfo=memory_statistics.free_and_total,
        _accelerator_getDeviceCapability=lambda index: {"supported_dtypes": set()},
    )


def _nothing(*args: Any, **kwargs: Any) -> None:
    """What a GPU does and a CPU has done already."""


def _ids(stream: Any) -> tuple[int, int, int]:
    return stream.stream_id, stream.device_index, stream.device_type


def properties(devices: Devices, device: Any = None) -> SimpleNamespace:
    """As torch.cuda.get_device_properties: every simulated GPU is of one kind."""
    index = devices.index_of(device)
    if index is not None and not 0 <= index < devices.count():
        refuse(AssertionError("Invalid device id"))
    return SimpleNamespace(
        name=NAME,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        total_memory=memory_statistics.TOTAL,
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
