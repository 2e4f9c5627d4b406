"""Collectives of NCCL groups, done by gloo: what NCCL takes is taken, and what it refuses is refused in its words.

Every collective that Python code starts passes one of ProcessGroup's methods, which are replaced here. gloo knows fewer
types, operations and shapes than NCCL: each method gives it tensors that it does know, over the same memory where
that is possible, and else brings the results back once the script has waited.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import nccl_moves as moves
from . import nccl_reductions as reductions
from .devices import Devices, is_on_cpu
from .nccl_calls import FLOAT8, GroupCall, Works, is_contiguous, is_dense, known, tensors_in
from .plain_calls import plain, refuse
from .replaced_attributes import Patches

_TAKEN = FLOAT8 | {
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.complex64, torch.complex128),
}
_OF_ANY_ORDER = ("send", "recv", "alltoall")
"""Methods that take any dense tensor; all others take contiguous ones."""
_METHODS: dict[str, Callable[..., Any]] = {
    "broadcast gather scatter alltoall_base all_to_all_single": moves.move,
    "send recv": moves.transfer,
    "allgather": moves.all_gather,
    "alltoall": moves.all_to_all,
    "_allgather_base all_gather_single": moves.gather_into,
    "allgather_into_tensor_coalesced all_gather_single_coalesced": moves.gather_into,
    "allreduce allreduce_coalesced": reductions.all_reduce,
    "reduce": reductions.reduce,
    "reduce_scatter": reductions.reduce_scatter_list,
    "_reduce_scatter_base reduce_scatter_single": reductions.reduce_scatter,
    "reduce_scatter_tensor_coalesced reduce_scatter_single_coalesced": reductions.reduce_scatter,
}
"""What is called in the place of ProcessGroup's methods; torch 2.13 gave some of them a second name."""
_UNSUPPORTED = {"recv_anysource": "recvAnysource", "allgather_coalesced": "allgather_coalesced"}


class Collectives:
    """ProcessGroup's methods, as a group of NCCL answers them."""

    def __init__(self, devices: Devices, device_types: Callable[[Any], Sequence[str]]) -> None:
        self._devices = devices
        self._device_types = device_types
        self._coalescing: dict[str, list[Any]] = {}
        """The works of groups that are between _start_coalescing and _end_coalescing, by the group's name."""

    def install(self, patches: Patches) -> None:
        """Replace the methods that this torch has."""
        group = torch.distributed.ProcessGroup
        for names, handler in (*_METHODS.items(), ("barrier", self._barrier)):
            for name in names.split():
                if hasattr(group, name):
                    patches.set(group, name, self._replaced(name, getattr(group, name), handler))
        for name, what in _UNSUPPORTED.items():
            patches.set(group, name, self._replaced(name, getattr(group, name), _unsupported(what)))
        works = self._coalescing
        patches.add(
            group,
            _start_coalescing=lambda group, device: works.update({group.group_name: []}),
            _end_coalescing=lambda group, device: Works(works.pop(group.group_name, [])),
        )
        patches.wrap(torch.distributed, "_broadcast_coalesced", self._broadcast_coalesced)

    def _replaced(
        self, name: str, original: Callable[..., Any], handler: Callable[..., Any]
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def method(group: Any, *args: Any, **kwargs: Any) -> Any:
            tensors = list(tensors_in((*args, *kwargs.values())))
            if self._is_gloos(group, tensors):
                return plain(original, (group, *args), kwargs)
            self._check(tensors)
            _check_layout(name, args)
            with torch.no_grad():
                work = handler(GroupCall(group, original), *args, **kwargs)
            works = self._coalescing.get(group.group_name)
            if works is None:
                return work
            works.append(work)
            return Works([])

        return method

    def _is_gloos(self, group: Any, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether gloo is asked: by the group, for tensors on the CPU, or for sparse ones, which it takes too."""
        types = self._device_types(group)
        on_cpu = "cpu" in types and any(is_on_cpu(tensor) for tensor in tensors)
        return on_cpu or "cuda" not in types or any(tensor.layout is not torch.strided for tensor in tensors)

    def _check(self, tensors: Sequence[torch.Tensor]) -> None:
        for tensor in tensors:
            if is_on_cpu(tensor):
                refuse(RuntimeError("No backend type associated with device type cpu"))
            if tensor.dtype not in _TAKEN:
                kind = str(tensor.dtype).removeprefix("torch.")
                refuse(TypeError(f"Input tensor data type is not supported for NCCL process group: {kind}"))

    def _barrier(self, call: GroupCall, opts: Any = None, **kwargs: Any) -> Any:
        """torch would make a tensor on the GPU that is named."""
        for_gloo = torch._C._distributed_c10d.BarrierOptions()
        opts = kwargs.get("opts", opts) or for_gloo
        for device in opts.device_ids:
            self._devices.use(device)
        for_gloo.timeout = opts.timeout
        return call(for_gloo)

    def _broadcast_coalesced(self, original: Any, group: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """Of parameters and buffers, which DistributedDataParallel asks for beside the group."""
        if not self._is_gloos(group, tensors):
            self._check(tensors)
            tensors = [known(tensor) for tensor in tensors]
        return plain(original, (group, tensors, *args), kwargs)


def _check_layout(name: str, args: Sequence[Any]) -> None:
    """NCCL asks for one piece of memory for each tensor; of lists for all ranks it makes one first."""
    lists = [value if isinstance(value, (list, tuple)) else [value] for value in args]
    for tensor in (tensor for value in lists for tensor in value if isinstance(tensor, torch.Tensor)):
        if name in _OF_ANY_ORDER:
            if not is_dense(tensor):
                refuse(ValueError("Tensors for P2P must be non-overlapping and dense"))
        elif not is_contiguous(tensor):
            refuse(ValueError("Tensors must be contiguous"))


def _unsupported(what: str) -> Callable[..., Any]:
    def handler(call: GroupCall, *args: Any, **kwargs: Any) -> Any:
        refuse(NotImplementedError(f"ProcessGroupNCCL does not support {what}"))

    return handler
