"""NCCL's collectives, in terms of those that gloo has: calls of ProcessGroup's methods, and the tensors in them as gloo
knows them."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .replacing import plain, refuse

Tensor = torch.Tensor

FLOAT8 = frozenset(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)


_NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
_MOST_BEGUN = 256
"""Collectives of a group that nobody has waited for; each keeps its tensors."""
_SCALED = (torch.float16, torch.float32, torch.bfloat16, torch.float64)


@dataclass(frozen=True)
class GroupCall:
    """A method of a process group that was called; to be called as often as it takes."""

    group: Any
    method: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return plain(self.method, (self.group, *args), kwargs)

    @property
    def ranks(self) -> int:
        return int(self.group.size())

    @property
    def rank(self) -> int:
        """The rank of this process in the group."""
        return int(self.group.rank())


@contextlib.contextmanager
def changed(opts: Any, name: str, value: Any) -> Iterator[Any]:
    """Options with another value of one of them for a while; or the value itself, where it is given without others."""
    if not hasattr(opts, name):
        yield value
        return
    before = getattr(opts, name)
    setattr(opts, name, value)
    try:
        yield opts
    finally:
        setattr(opts, name, before)


def operation_of(opts: Any) -> Any:
    """What a reduction computes, which is given among options, by itself, or not at all."""
    return torch.distributed.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


class Works:
    """The works that gloo does for one call, and what is left to do once they are done."""

    def __init__(
        self, works: Sequence[Any], results: Sequence[Tensor] = (), finish: Callable[[], object] | None = None
    ) -> None:
        self._works = [work for work in works if work is not None]
        self._results = list(results)
        self._finish = finish

    @property
    def gloos(self) -> Any:
        """The first of them, as torch's own code takes it."""
        return getattr(self._works[0], "gloos", self._works[0])

    def wait(self, *args: Any, **kwargs: Any) -> bool:
        """Wait for all of them, and bring the results to where the script looks for them."""
        for work in self._works:
            work.wait(*args, **kwargs)
        self._finished()
        return True

    def _finished(self) -> None:
        finish, self._finish = self._finish, None
        if finish is not None:
            with torch.no_grad():
                finish()

    def is_completed(self) -> bool:
        """Whether nothing is left; a script that polls never waits."""
        return all(work.is_completed() for work in self._works) and self.wait()

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def result(self) -> list[Tensor]:
        self.wait()
        return self._results

    def get_future(self) -> Any:
        """A future of the results, as communication hooks ask for."""
        futures = [work.get_future() for work in self._works]

        def value(done: Any) -> list[Tensor]:
            done.value()
            self._finished()
            return self._results

        return torch.futures.collect_all(futures).then(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._works[-1], name)


class InOrder(Works):
    """A collective as NCCL does it, those of a group in order: who has waited for one has waited for all before."""

    def __init__(self, work: Any, begun: deque[InOrder]) -> None:
        super().__init__([work])
        self._begun = begun
        begun.append(self)
        if len(begun) > _MOST_BEGUN:
            begun[0].wait()

    def wait(self, *args: Any, **kwargs: Any) -> bool:
        """Wait for all that the script had begun before, and for this one."""
        while self in self._begun:
            before = self._begun.popleft()
            if before is not self:
                before._works[0].wait(*args, **kwargs)
        return super().wait(*args, **kwargs)

    def result(self) -> list[Tensor]:
        self.wait()
        return list(self._works[0].result())

    def get_future(self) -> Any:
        with contextlib.suppress(ValueError):
            self._begun.remove(self)
        return self._works[0].get_future()


def tensors_in(values: Any) -> Iterator[Tensor]:
    """The tensors among arguments, however nested in lists."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def known(tensor: Tensor) -> Tensor:
    """The memory of a tensor, as a type that gloo moves."""
    tensor = tensor.detach()
    if tensor.dtype in FLOAT8:
        return tensor.view(torch.uint8)
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def is_contiguous(tensor: Tensor) -> bool:
    """Whether its memory is in the order of one of torch's formats."""
    other = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim(), torch.contiguous_format)
    return tensor.is_contiguous() or tensor.is_contiguous(memory_format=other)


def is_dense(tensor: Tensor) -> bool:
    """Whether its elements are one piece of memory, in whatever order."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    return not tensor.numel() or sum((size - 1) * stride for size, stride in strides) + 1 == tensor.numel()


def raw(tensor: Tensor) -> Tensor:
    """The memory of a dense tensor, in its order."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def flat(tensor: Tensor) -> Tensor:
    """The memory of a dense tensor, in its order, as a type that gloo moves."""
    return raw(known(tensor))


def mapped(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """An argument with its tensors changed, however nested in lists."""
    if isinstance(value, Tensor):
        return change(value)
    return [mapped(element, change) for element in value] if isinstance(value, (list, tuple)) else value


# -- the collectives ------------------------------------------------------------------------------------------


class _Operation:
    """What a reduction computes."""

    def __init__(self, opts: Any, dtype: torch.dtype, ranks: int) -> None:
        operations = torch.distributed.ReduceOp
        self.opts = opts
        given = operation_of(opts)
        name = next(name for name in _NAMES if given == getattr(operations, name))
        self.gloos, self.factor, self.divisor = given, None, 1
        if name in ("BAND", "BOR", "BXOR"):
            refuse(ValueError(f"Cannot use ReduceOp.{name} with NCCL"))
        elif name == "AVG":
            if dtype is torch.bool:
                refuse(TypeError("Cannot use ReduceOp.AVG with boolean inputs"))
            self.gloos, self.divisor = operations.SUM, ranks
        elif name == "PREMUL_SUM":
            if dtype not in _SCALED:
                refuse(TypeError("PreMulSum Data type must be half, float, bfloat16 or double"))
            self.gloos, self.factor = operations.SUM, given.__getstate__()[1]
        elif name == "SUM" and dtype is torch.bool:
            self.gloos = operations.MAX  # as NCCL has it: one byte for each cannot hold more

    def summand(self, tensor: Tensor) -> Tensor:
        """What is reduced in the place of a tensor: itself where gloo can."""
        tensor = tensor.detach()
        wide = tensor.float() if tensor.dtype in FLOAT8 else tensor
        return wide if self.factor is None else wide * self.factor

    def for_gloo(self) -> contextlib.AbstractContextManager[Any]:
        """The options, or the operation alone, as gloo gets it."""
        return changed(self.opts, "reduceOp", self.gloos)

    def run(self, call: GroupCall, *args: Any, pairs: Sequence[tuple[Tensor, Tensor]]) -> Any:
        """Let gloo reduce; each pair is what it writes to and what the script looks at."""
        with self.for_gloo() as opts:
            work = call(*args, opts)
        if self.divisor == 1 and all(written.data_ptr() == result.data_ptr() for written, result in pairs):
            return work

        def finish() -> None:
            for written, result in pairs:
                self.bring(written, result)

        return Works([work], [result for _, result in pairs], finish)

    def bring(self, written: Tensor, result: Tensor) -> None:
        """Bring what was reduced to where the script looks for it."""
        if self.divisor != 1:
            whole = not (written.is_floating_point() or written.is_complex())
            written = torch.div(written, self.divisor, rounding_mode="trunc" if whole else None)
        result.detach().copy_(written.view_as(result))


def all_reduce(call: GroupCall, tensors: Any, opts: Any = None, *args: Any) -> Any:
    """Of one tensor, or of several at once."""
    results = list(tensors_in([tensors]))
    operation = _Operation(opts, results[0].dtype, call.ranks)
    written = [operation.summand(result) for result in results]
    return operation.run(call, written, pairs=list(zip(written, results, strict=True)))


def reduce(call: GroupCall, tensors: Any, opts: Any, *args: Any) -> Any:
    """Only the root's tensor changes; gloo would write to those of the others on its way."""
    if not hasattr(opts, "rootRank"):
        return call(tensors, opts, *args)
    own = call.rank == opts.rootRank
    return all_reduce(call, tensors if own else [tensor.clone() for tensor in tensors_in([tensors])], opts)


def reduce_scatter(call: GroupCall, outputs: Any, inputs: Any, opts: Any = None) -> Any:
    """Of one tensor, of any shape with the right number of elements; or of several at once."""
    results, wholes = list(tensors_in([outputs])), list(tensors_in([inputs]))
    for result, whole in zip(results, wholes, strict=True):
        if result.dtype != whole.dtype:
            refuse(TypeError("input tensor must be the same type as the output tensor."))
        if whole.numel() != result.numel() * call.ranks:
            refuse(ValueError("input tensor size must be equal to world_size times output tensor size"))
    operation = _Operation(opts, wholes[0].dtype, call.ranks)
    written = [raw(result.float() if result.dtype in FLOAT8 else result) for result in results]
    given = [raw(operation.summand(whole)) for whole in wholes]
    args = (written, given) if isinstance(outputs, (list, tuple)) else (written[0], given[0])
    return operation.run(call, *args, pairs=list(zip(written, map(raw, results), strict=True)))


def reduce_scatter_list(call: GroupCall, outputs: Any, inputs: Any, opts: Any = None, *args: Any) -> Any:
    """Of a list, whose tensors may differ in size: all is reduced, and this rank takes its part."""
    result, parts = next(tensors_in([outputs])), list(tensors_in([inputs]))
    operation = _Operation(opts, result.dtype, call.ranks)
    sizes = [part.numel() for part in parts]
    if len(parts) != call.ranks:
        refuse(
            RuntimeError("Tensor list input to scatter/gather must match number of collective participants")
        )
    if sizes[call.rank] != result.numel():
        refuse(RuntimeError("All tensor operands to scatter/gather must have the same number of elements"))
    whole = torch.cat([operation.summand(part).reshape(-1) for part in parts])
    of_rank = torch.split(whole, sizes)[call.rank]
    work = call.group.allreduce([whole], operation.gloos)
    return Works([work], [result], lambda: operation.bring(of_rank, result))


def move(call: GroupCall, *args: Any, **kwargs: Any) -> Any:
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
