"""NCCL's collectives that move data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .nccl_calls import GroupCall, Works, flat, known, mapped, tensors_in
from .plain_calls import refuse

Tensor = torch.Tensor


def move(call: GroupCall, *args: Any, **kwargs: Any) -> Any:
    """As gloo does it."""
    return call(*[mapped(value, known) for value in args], **kwargs)


def transfer(call: GroupCall, *args: Any, **kwargs: Any) -> Any:
    """Between two ranks: the memory as it is."""
    return call(*[mapped(value, flat) for value in args], **kwargs)


def all_gather(call: GroupCall, outputs: Any, inputs: Any, *args: Any) -> Any:
    """Into a list: NCCL takes any shapes of one size, and broadcasts from each rank where sizes differ."""
    if isinstance(inputs, Tensor):
        outputs, inputs = [outputs], [inputs]
    results, given = outputs[0], inputs[0]
    sizes = {result.numel() for result in results}
    if len(sizes) > 1:
        return _broadcast_each(call, results, given)
    if sizes != {given.numel()}:
        return call(outputs, inputs, *args)
    written = [flat(result) if result.is_contiguous() else flat(result.contiguous()) for result in results]
    work = call([written], [flat(given.contiguous())], *args)
    return _bring(work, written, results)


def _broadcast_each(call: GroupCall, results: Sequence[Tensor], given: Tensor) -> Any:
    result_of_rank = results[call.rank]
    if result_of_rank.numel() != given.numel():
        refuse(ValueError("Tensor input and output of _broadcast_oop must have the same number of elements"))
    result_of_rank.copy_(given.view_as(result_of_rank))
    written = [flat(result.contiguous()) for result in results]
    works = []
    for root, part in enumerate(written):
        opts = torch._C._distributed_c10d.BroadcastOptions()
        opts.rootRank = root
        works.append(call.group.broadcast([part], opts))
    return _bring(Works(works), written, results)


def _bring(work: Any, written: Sequence[Tensor], results: Sequence[Tensor]) -> Any:
    """What gloo wrote to, brought to results that lie elsewhere."""
    apart = [
        (known(result), part)
        for result, part in zip(results, written, strict=True)
        if result.numel() and result.data_ptr() != part.data_ptr()
    ]
    if not apart:
        return work
    return Works([work], results, lambda: [result.copy_(part.view_as(result)) for result, part in apart])


def all_to_all(call: GroupCall, outputs: Any, inputs: Any, *args: Any) -> Any:
    """Of lists, whose tensors may differ in size."""
    results = [flat(output) for output in outputs]
    given = torch.cat([flat(tensor) for tensor in inputs])
    taken = given.new_empty(sum(result.numel() for result in results))
    sizes = [result.numel() for result in results]
    work = call.group.alltoall_base(taken, given, sizes, [tensor.numel() for tensor in map(flat, inputs)])

    def finish() -> None:
        for result, part in zip(results, torch.split(taken, sizes), strict=True):
            result.copy_(part)

    return Works([work], outputs, finish)


def gather_into(call: GroupCall, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Into one tensor: of any shape with the right number of elements."""
    for output, given in zip(tensors_in([outputs]), tensors_in([inputs]), strict=True):
        if output.dtype != given.dtype:
            refuse(TypeError("output tensor must have the same type as input tensor"))
        if output.numel() != given.numel() * call.ranks:
            refuse(ValueError("output tensor size must be equal to world_size times input tensor size"))
    return call(mapped(outputs, flat), mapped(inputs, flat), *args, **kwargs)
