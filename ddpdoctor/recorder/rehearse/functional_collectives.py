"""Functional collectives, which torch runs below Python: written out on the methods of the process group.

Tensor parallelism, meshes and compiled code use them; they wait at once, so nothing is left for ``wait_tensor``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .replacing import Patches

Tensor = torch.Tensor
_LIBRARY = "_c10d_functional"
_registered: list[Any] = []
"""A kernel ends with the object that registered it."""


def install(patches: Patches) -> None:
    """Give torch's operators a kernel for the CPU, above the one for all devices."""
    if not torch.distributed.is_available():
        return
    library: Any = torch.library.Library(_LIBRARY, "IMPL")  # type: ignore[no-untyped-call]
    for name, kernel in _KERNELS.items():
        if hasattr(getattr(torch.ops, _LIBRARY), name):
            library.impl(name, kernel, "CPU")
    _registered.append(library)
    patches.callback(lambda: _registered.pop()._destroy())


def _group(group: Any) -> Any:
    kind, home = torch.distributed.ProcessGroup, torch._C._distributed_c10d
    if isinstance(group, str):
        return home._resolve_process_group(group)  # type: ignore[arg-type]
    return group if isinstance(group, kind) else kind.unbox(group)


def _with(opts: Any, operation: str) -> Any:
    opts.reduceOp = getattr(torch.distributed.ReduceOp, operation.upper())
    return opts


def _all_reduce_(input: Tensor, reduce_op: str, group_name: Any) -> Tensor:
    opts = _with(torch._C._distributed_c10d.AllreduceOptions(), reduce_op)
    _group(group_name).allreduce([input], opts).wait()
    return input


def _broadcast_(input: Tensor, src: int, group_name: Any) -> Tensor:
    opts = torch._C._distributed_c10d.BroadcastOptions()
    opts.rootRank = src
    _group(group_name).broadcast([input], opts).wait()
    return input


def _all_gather_out(input: Tensor, group_size: int, group_name: Any, *, out: Tensor) -> Tensor:
    """Along the first dimension, into a tensor that is there."""
    _group(group_name)._allgather_base(out, input.contiguous()).wait()
    return out


def _all_gather(input: Tensor, group_size: int, group_name: Any) -> Tensor:
    shape = (input.shape[0] * group_size, *input.shape[1:]) if input.dim() else (group_size,)
    return _all_gather_out(input, group_size, group_name, out=input.new_empty(shape))


def _reduce_scatter_out(
    input: Tensor, reduce_op: str, group_size: int, group_name: Any, *, out: Tensor
) -> Tensor:
    """Along the first dimension, into a tensor that is there."""
    opts = _with(torch._C._distributed_c10d.ReduceScatterOptions(), reduce_op)
    _group(group_name)._reduce_scatter_base(out, input.contiguous(), opts).wait()
    return out


def _reduce_scatter(input: Tensor, reduce_op: str, group_size: int, group_name: Any) -> Tensor:
    out = input.new_empty((input.shape[0] // group_size, *input.shape[1:]))
    return _reduce_scatter_out(input, reduce_op, group_size, group_name, out=out)


def _all_to_all_single(
    input: Tensor, output_split_sizes: Sequence[int], input_split_sizes: Sequence[int], group_name: Any
) -> Tensor:
    output = input.new_empty((sum(output_split_sizes), *input.shape[1:]))
    group = _group(group_name)
    group.alltoall_base(output, input.contiguous(), list(output_split_sizes), list(input_split_sizes)).wait()
    return output


def _of_a_copy(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but not in place."""
    return lambda input, *args: kernel(input.clone(memory_format=torch.contiguous_format), *args)


def _of_each(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The same of several tensors."""
    return lambda inputs, *args: [kernel(input, *args) for input in inputs]


_KERNELS: dict[str, Callable[..., Any]] = {
    "all_reduce_": _all_reduce_,
    "all_reduce": _of_a_copy(_all_reduce_),
    "all_reduce_coalesced_": _of_each(_all_reduce_),
    "all_reduce_coalesced": _of_each(_of_a_copy(_all_reduce_)),
    "all_gather_into_tensor": _all_gather,
    "all_gather_into_tensor_out": _all_gather_out,
    "all_gather_into_tensor_coalesced": _of_each(_all_gather),
    "reduce_scatter_tensor": _reduce_scatter,
    "reduce_scatter_tensor_out": _reduce_scatter_out,
    "reduce_scatter_tensor_coalesced": _of_each(_reduce_scatter),
    "all_to_all_single": _all_to_all_single,
    "broadcast_": _broadcast_,
    "broadcast": _of_a_copy(_broadcast_),
}
