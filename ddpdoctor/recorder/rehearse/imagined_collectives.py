"""Process groups in which some ranks are imaginary: collectives are done by the real ones, and completed for all.

gloo gets groups of the real ranks alone. Python code, the script's and torch's, is told of all: their number, its own
rank among them. torch's reducer, in C++, needs no more: it takes the mean over the real ranks.

Sums are scaled as if the imaginary ranks held what the real ones hold; what is gathered or sent by an imaginary rank is
what a real one gave. Every collective that Python code starts passes one of ProcessGroup's methods, which are replaced
here, below those that ``process_groups`` puts in their place.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from .nccl_operations import GroupCall, Works, changed, operation_of, tensors_in
from .replacing import Note, Patches, plain
from .simulated_hosts import ImaginedJob


@dataclass(frozen=True)
class Members:
    """The ranks of one process group."""

    ranks: tuple[int, ...]
    """As ranks of the job, in the group's order."""
    rank: int
    """The rank of this process in the group."""
    real: tuple[int, ...]
    """The places in the group of those that are processes, in order."""

    @cached_property
    def players(self) -> tuple[int, ...]:
        """For each place in the group, the process whose content stands there: the real ranks take turns."""
        place = {rank: index for index, rank in enumerate(self.real)}
        return tuple(place.get(rank, rank % len(self.real)) for rank in range(len(self.ranks)))

    def process(self, rank: int) -> int | None:
        """The number among the processes of a rank of the group; None where it is imaginary."""
        return self.real.index(rank) if rank in self.real else None


class ImaginedGroups:
    """Makes groups of the real ranks and remembers of which groups they are a part."""

    def __init__(self, job: ImaginedJob) -> None:
        self._job = job
        self._members: dict[str, Members] = {}
        """By the group's name, which torch keeps unique."""

    def install(self, patches: Patches) -> None:
        """Replace what makes groups, and what tells their size."""
        home, group = torch.distributed.distributed_c10d, torch.distributed.ProcessGroup
        patches.wrap(home, "_new_process_group_helper", self._new_group)
        patches.wrap(home, "_store_based_barrier", self._barrier)
        # The module, since a function has its name.
        patches.wrap(sys.modules["torch.distributed.rendezvous"], "_create_c10d_store", self._create_store)
        patches.wrap(group, "size", self._told(lambda members: len(members.ranks)))
        patches.wrap(group, "rank", self._told(lambda members: members.rank))

    def members(self, group: Any) -> Members | None:
        """The ranks of a group; None where all of them are real, or that is not known."""
        return self._members.get(group.group_name)

    @contextlib.contextmanager
    def among_real(self, group: Any) -> Iterator[Members | None]:
        """Have a group be one of the real ranks alone for a while; answers what it is otherwise."""
        members = self._members.pop(group.group_name, None)
        try:
            yield members
        finally:
            if members is not None:
                self._members[group.group_name] = members

    def _new_group(
        self, original: Any, size: int, rank: int, ranks: Sequence[int], *args: Any, **kwargs: Any
    ) -> Any:
        everybody = tuple(ranks) or tuple(range(size))
        places = tuple(place for place, member in enumerate(everybody) if member in self._job.real)
        if rank not in places:  # no member; or a rank that the launcher gave to nobody
            return plain(original, (size, rank, ranks, *args), kwargs)
        members = Members(everybody, rank, places)
        made = plain(original, (len(places), members.process(rank), ranks, *args), kwargs)
        if len(places) < len(everybody):
            self._members[made[0].group_name] = members
        return made

    def _barrier(
        self, original: Any, rank: int, store: Any, name: str, count: int, *args: Any, **kwargs: Any
    ) -> None:
        members = self._members.get(name)
        everybody = len(self._job.real) if count == self._job.size else count
        taking_part = len(members.real) if members and count == len(members.ranks) else everybody
        plain(original, (rank, store, name, taking_part, *args), kwargs)

    def _create_store(
        self, original: Any, host: str, port: int, rank: int, world_size: int, *args: Any, **kwargs: Any
    ) -> Any:
        """The store's server waits for as many clients as it is told of."""
        clients = len(self._job.real) if world_size == self._job.size else world_size
        return plain(original, (host, port, rank, clients, *args), kwargs)

    def _told(self, number: Callable[[Members], int]) -> Callable[..., int]:
        def told(original: Any, group: Any) -> int:
            members = self.members(group)
            return int(original(group)) if members is None else number(members)

        return told


Tensor = torch.Tensor


class ImaginaryPeer(RuntimeError):
    """A script waits for a message of a rank that is not there."""


def install(groups: ImaginedGroups, patches: Patches, note: Note) -> None:
    """Replace the methods that this torch has."""
    group = torch.distributed.ProcessGroup
    exchange = group.alltoall_base  # before it is replaced itself
    for names, handler in _METHODS.items():
        for name in names.split():
            if hasattr(group, name):
                method = _replaced(groups, getattr(group, name), exchange, handler, note)
                patches.set(group, name, method)
    patches.wrap(torch.distributed, "_broadcast_coalesced", functools.partial(_broadcast_coalesced, groups))
    gather = functools.partial(_all_gather_object, groups)
    patches.wrap(torch.distributed.distributed_c10d, "all_gather_object", gather, torch.distributed)


@dataclass(frozen=True)
class _ImaginedCall(GroupCall):
    """A method that was called on a group with imaginary members."""

    members: Members
    exchange: Callable[..., Any]
    """gloo's method by which each rank gives each other one a part of any size."""
    note: Note

    @property
    def processes(self) -> int:
        """How many of the group's ranks are real."""
        return len(self.members.real)


def _replaced(
    groups: ImaginedGroups,
    original: Callable[..., Any],
    exchange: Callable[..., Any],
    handler: Callable[..., Any],
    note: Note,
) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(group: Any, *args: Any, **kwargs: Any) -> Any:
        if (members := groups.members(group)) is None:
            return plain(original, (group, *args), kwargs)
        with torch.no_grad():
            return handler(_ImaginedCall(group, original, members, exchange, note), *args, **kwargs)

    return method


def _broadcast_coalesced(
    groups: ImaginedGroups,
    original: Any,
    group: Any,
    tensors: Any,
    buffer_size: int,
    src: int = 0,
    *args: Any,
) -> Any:
    """Of parameters and buffers, which DistributedDataParallel asks for beside the group."""
    members = groups.members(group)
    root = src if members is None else members.players[src]
    return plain(original, (group, tensors, buffer_size, root, *args))


def _all_gather_object(
    groups: ImaginedGroups, original: Any, object_list: Any, obj: Any, group: Any = None
) -> None:
    """Each object arrives once, and stands in as many places as it has to: a copy in each would fill the memory."""
    with groups.among_real(group or torch.distributed.group.WORLD) as members:
        if members is None or len(object_list) != len(members.ranks):
            plain(original, (object_list, obj, group))
            return
        given = [None] * len(members.real)
        plain(original, (given, obj, group))
    object_list[:] = [given[process] for process in members.players]


def _root(opts: Any, process: int) -> contextlib.AbstractContextManager[Any]:
    """Options, or a root alone, with the number of a process as the root."""
    return changed(opts, "rootRank", process)


def _root_of(opts: Any) -> int:
    return int(getattr(opts, "rootRank", opts))


# -- reductions -------------------------------------------------------------------------------------------


def _complete(results: Sequence[Tensor], opts: Any, call: _ImaginedCall) -> None:
    """What all ranks together would have computed, from results of the real ones."""
    operations, operation = torch.distributed.ReduceOp, operation_of(opts)
    for result in results:
        if result.dtype is torch.bool:
            continue
        if operation == operations.PRODUCT:
            result.copy_(result.double().pow(call.ranks / call.processes))
        elif operation == operations.SUM and result.dtype is torch.float16:
            result.mul_(call.ranks / call.processes)
        elif operation == operations.SUM and (result.is_floating_point() or result.is_complex()):
            result.mul_(call.ranks).div_(call.processes)  # exact where each rank counts as one
        elif operation == operations.SUM:
            result.copy_(result.long() * call.ranks // call.processes)


def _all_reduce(call: _ImaginedCall, tensors: Any, opts: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Of one tensor, or of several at once."""
    results = list(tensors_in([tensors]))
    work = call(tensors, *() if opts is None else (opts,), *args, **kwargs)
    opts = kwargs.get("op", opts)
    return Works([work], results, lambda: _complete(results, opts, call))


def _reduce(call: _ImaginedCall, tensors: Any, opts: Any = 0, op: Any = None, *args: Any) -> Any:
    if (process := call.members.process(_root_of(opts))) is None:
        return Works([])  # its result is nobody's
    with _root(opts, process) as opts_of_process:
        work = call(tensors, opts_of_process, *(() if op is None else (op,)), *args)
    if call.members.rank != call.members.real[process]:
        return work
    results = list(tensors_in([tensors]))
    operation = opts if op is None else op
    return Works([work], results, lambda: _complete(results, operation, call))


def _sum_of_parts(call: _ImaginedCall, result: Tensor, parts: Sequence[Tensor], opts: Any) -> Any:
    """This rank's part of what all reduce: the real ranks reduce theirs, and each takes its own."""
    wanted = [parts[place].reshape(-1) for place in call.members.real]
    whole = torch.cat(wanted)
    work = call.group.allreduce([whole], operation_of(opts))
    mine = torch.split(whole, [part.numel() for part in wanted])[call.members.real.index(call.members.rank)]
    return Works([work], [result], lambda: result.copy_(mine.view_as(result)))


def _reduce_scatter(call: _ImaginedCall, outputs: Any, inputs: Any, opts: Any = None, *args: Any) -> Any:
    """Of one tensor that is cut, of several at once, or of a list."""
    results, given = list(tensors_in([outputs])), list(tensors_in([inputs]))
    if len(given) == call.ranks and len(results) == 1 and call.ranks > 1:
        return _sum_of_parts(call, results[0], given, opts)
    parts = [whole.reshape(-1).chunk(call.ranks) for whole in given]
    works = [_sum_of_parts(call, *pair, opts) for pair in zip(results, parts, strict=True)]
    return works[0] if len(works) == 1 else Works(works, results)


# -- what moves data --------------------------------------------------------------------------------------


def _broadcast(call: _ImaginedCall, tensors: Any, opts: Any = 0, *args: Any, **kwargs: Any) -> Any:
    opts = kwargs.pop("root", opts)
    with _root(opts, call.members.players[_root_of(opts)]) as opts_of_process:
        return call(tensors, opts_of_process, *args, **kwargs)


def _exchange(call: _ImaginedCall, results: Sequence[Tensor | None], given: Sequence[Tensor | None]) -> Works:
    """Each rank gives each other a part, or none; parts of imaginary ranks are those of the processes that stand there.
    What is gathered and scattered comes down to this, too."""
    here = call.members.real
    none = next(part for part in (*given, *results) if part is not None).new_empty(0)
    sent = [none if (part := given[place]) is None else part.reshape(-1) for place in here]
    sizes = [0 if (result := results[place]) is None else result.numel() for place in here]
    buffer = none.new_empty(sum(sizes))
    args = call.group, buffer, torch.cat(sent), sizes, [part.numel() for part in sent]
    work = plain(call.exchange, args)

    def finish() -> None:
        parts = torch.split(buffer, sizes)
        for result, process in zip(results, call.members.players, strict=True):
            if result is not None and parts[process].numel() == result.numel():
                result.copy_(parts[process].view_as(result))
            elif result is not None:
                result.zero_()

    return Works([work], [result for result in results if result is not None], finish)


def _all_gather(call: _ImaginedCall, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    given = next(tensors_in([inputs]))
    return _exchange(call, list(tensors_in([outputs])), [given] * call.ranks)


def _gather_into(call: _ImaginedCall, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Into one tensor, or into several at once."""
    wholes, given = list(tensors_in([outputs])), list(tensors_in([inputs]))
    pairs = zip(wholes, given, strict=True)
    works = [_exchange(call, whole.view(-1).chunk(call.ranks), [part] * call.ranks) for whole, part in pairs]
    return Works(works, wholes)


def _gather(call: _ImaginedCall, outputs: Any, inputs: Any, opts: Any = 0, *args: Any) -> Any:
    root, given = _root_of(opts), next(tensors_in([inputs]))
    if call.members.process(root) is None:
        return Works([])
    results: list[Tensor | None] = [*tensors_in([outputs])] or [None] * call.ranks
    return _exchange(call, results, [given if place == root else None for place in range(call.ranks)])


def _scatter(call: _ImaginedCall, outputs: Any, inputs: Any, opts: Any = 0, *args: Any) -> Any:
    root, result = _root_of(opts), next(tensors_in([outputs]))
    key = (call.group.group_name, result.numel(), result.dtype)
    if call.members.process(root) is None:
        last = _scattered.get(key)
        return Works([], [result if last is None else result.copy_(last.view_as(result))])
    given: list[Tensor | None] = [*tensors_in([inputs])] or [None] * call.ranks
    work = _exchange(call, [result if place == root else None for place in range(call.ranks)], given)
    return Works([work], [result], lambda: _scattered.update({key: result.clone()}))


_scattered: dict[tuple[str, int, torch.dtype], Tensor] = {}
"""What a real rank scattered last to this one, by group, size and type: what an imaginary one scatters."""


def _all_to_all(call: _ImaginedCall, outputs: Any, inputs: Any, *args: Any) -> Any:
    return _exchange(call, list(tensors_in([outputs])), list(tensors_in([inputs])))


def _all_to_all_single(
    call: _ImaginedCall, output: Any, input: Any, output_sizes: Any = (), input_sizes: Any = (), *args: Any
) -> Any:
    """Of one tensor that is cut."""

    def cut(tensor: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
        return torch.split(tensor, list(sizes)) if sizes else tensor.chunk(call.ranks)

    return _exchange(call, cut(output, output_sizes), cut(input, input_sizes))


def _send(call: _ImaginedCall, tensors: Any, peer: int, *args: Any) -> Any:
    if (process := call.members.process(peer)) is None:
        call.note("messages", "a message to an imaginary rank goes nowhere")
        return Works([])
    return call(tensors, process, *args)


def _receive(call: _ImaginedCall, tensors: Any, peer: int, *args: Any) -> Any:
    if (process := call.members.process(peer)) is None:
        raise ImaginaryPeer(f"rank {peer} of the group is imaginary, and sends nothing")
    return call(tensors, process, *args)


_METHODS: dict[str, Callable[..., Any]] = {
    "allreduce allreduce_coalesced": _all_reduce,
    "reduce": _reduce,
    "reduce_scatter _reduce_scatter_base reduce_scatter_single": _reduce_scatter,
    "reduce_scatter_tensor_coalesced reduce_scatter_single_coalesced": _reduce_scatter,
    "broadcast": _broadcast,
    "allgather": _all_gather,
    "_allgather_base all_gather_single": _gather_into,
    "allgather_into_tensor_coalesced all_gather_single_coalesced": _gather_into,
    "gather": _gather,
    "scatter": _scatter,
    "alltoall": _all_to_all,
    "alltoall_base all_to_all_single": _all_to_all_single,
    "send": _send,
    "recv": _receive,
}
