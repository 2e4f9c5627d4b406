"""Calls of ProcessGroup's methods, and the tensors in them as gloo knows them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .replacing import plain

Tensor = torch.Tensor

FLOAT8 = frozenset(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)


@dataclass(frozen=True)
class GroupCall:
    """A method of a process group that was called; to be called as often as it takes."""

    group: Any
    method: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return plain(self.method, (self.group, *args), kwargs)

    @property
    def ranks(self) -> int:
        """The size of the group."""
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
    def first(self) -> Any:
        """What gloo does first."""
        return self._works[0]

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
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.is_contiguous() or (
        tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])
    )


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
