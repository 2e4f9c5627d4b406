"""Functional collectives, which torch runs below Python: written out on the methods of the process group.

Tensor parallelism, meshes and compiled code use them; they wait at once, so nothing is left for ``wait_tensor``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .replaced_attributes import Patches

Tensor = torch.Tensor
_LIBRARY = "_c10d_functional"
_registered: list[Any] = []
"""A kernel ends with the object that registered it."""


def install(patches: Patches) -> None:
    """Give torch's operators a kernel for the CPU, above the one for all devices."""
    if not torch.distributed.is_available():
        return
    library: Any = torch.library.Library(_LIBRARY, "IMPL")  # type: ignore[no-untyped-call]
    for kernel in _KERNELS:
        if hasattr(getattr(torch.ops, _LIBRARY), kernel.__name__):
            library.impl(kernel.__name__, kernel, "CPU")
    _registered.append(library)
    patches.on_undo(lambda: _registered.pop()._destroy())


def _group(group: Any) -> Any:
    kind, home = torch.distributed.ProcessGroup, torch._C._distributed_c10d
    if isinstance(group, str):
        return home._resolve_process_group(group)  # type: ignore[arg-type]
    return group if isinstance(group, kind) else kind.unbox(group)


def _with(opts: Any, operation: str) -> Any:
    opts.reduceOp = getattr(torch.distributed.ReduceOp, operation.upper())
    return opts


def all_reduce_(input: Tensor, reduce_op: str, group_name: Any) -> Tensor:
    """In place."""
    opts = _with(torch._C._distributed_c10d.AllreduceOptions(), reduce_op)
    _group(group_name).allreduce([input], opts).wait()
    return input


def all_reduce(input: Tensor, reduce_op: str, group_name: Any) -> Tensor:
    """Into a tensor of its own."""
    return all_reduce_(input.clone(memory_format=torch.contiguous_format), reduce_op, group_name)


def all_reduce_coalesced_(inputs: Sequence[Tensor], reduce_op: str, group_name: Any) -> list[Tensor]:
    """Of several, in place."""
    return [all_reduce_(input, reduce_op, group_name) for input in inputs]


def all_reduce_coalesced(inputs: Sequence[Tensor], reduce_op: str, group_name: Any) -> list[Tensor]:
    """Of several."""
    return [all_reduce(input, reduce_op, group_name) for input in inputs]


def all_gather_into_tensor_out(input: Tensor, group_size: int, group_name: Any, *, out: Tensor) -> Tensor:
    """Along the first dimension, into a tensor that is there."""
    _group(group_name)._allgather_base(out, input.contiguous()).wait()
    return out


def all_gather_into_tensor(input: Tensor, group_size: int, group_name: Any) -> Tensor:
    """Along the first dimension."""
    shape = (input.shape[0] * group_size, *input.shape[1:]) if input.dim() else (group_size,)
    return all_gather_into_tensor_out(input, group_size, group_name, out=input.new_empty(shape))


def all_gather_into_tensor_coalesced(
    inputs: Sequence[Tensor], group_size: int, group_name: Any
) -> list[Tensor]:
    """Of several."""
    return [all_gather_into_tensor(input, group_size, group_name) for input in inputs]


def reduce_scatter_tensor_out(
    input: Tensor, reduce_op: str, group_size: int, group_name: Any, *, out: Tensor
) -> Tensor:
    """Along the first dimension, into a tensor that is there."""
    opts = _with(torch._C._distributed_c10d.ReduceScatterOptions(), reduce_op)
    _group(group_name)._reduce_scatter_base(out, input.contiguous(), opts).wait()
    return out


def reduce_scatter_tensor(input: Tensor, reduce_op: str, group_size: int, group_name: Any) -> Tensor:
    """Along the first dimension."""
    out = input.new_empty((input.shape[0] // group_size, *input.shape[1:]))
    return reduce_scatter_tensor_out(input, reduce_op, group_size, group_name, out=out)


def reduce_scatter_tensor_coalesced(
    inputs: Sequence[Tensor], reduce_op: str, group_size: int, group_name: Any
) -> list[Tensor]:
    """Of several."""
    return [reduce_scatter_tensor(input, reduce_op, group_size, group_name) for input in inputs]


def all_to_all_single(
    input: Tensor, output_split_sizes: Sequence[int], input_split_sizes: Sequence[int], group_name: Any
) -> Tensor:
    """Along the first dimension."""
    output = input.new_empty((sum(output_split_sizes), *input.shape[1:]))
    group = _group(group_name)
    group.alltoall_base(output, input.contiguous(), list(output_split_sizes), list(input_split_sizes)).wait()
    return output


def broadcast_(input: Tensor, src: int, group_name: Any) -> Tensor:
    """In place."""
    opts = torch._C._distributed_c10d.BroadcastOptions()
    opts.rootRank = src
    _group(group_name).broadcast([input], opts).wait()
    return input


def broadcast(input: Tensor, src: int, group_name: Any) -> Tensor:
    """Into a tensor of its own."""
    return broadcast_(input.clone(memory_format=torch.contiguous_format), src, group_name)


_KERNELS: tuple[Callable[..., Any], ...] = (
    *(all_reduce, all_reduce_, all_reduce_coalesced, all_reduce_coalesced_),
    *(all_gather_into_tensor, all_gather_into_tensor_out, all_gather_into_tensor_coalesced),
    *(reduce_scatter_tensor, reduce_scatter_tensor_out, reduce_scatter_tensor_coalesced),
    *(all_to_all_single, broadcast, broadcast_),
)
