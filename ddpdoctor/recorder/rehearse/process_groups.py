"""Process groups: what a script asks of NCCL is done by gloo, under the name that the script expects.

Every collective that Python code starts passes one of ProcessGroup's methods, which are replaced here: what NCCL takes
is taken, and what it refuses is refused in its words. gloo knows fewer types, operations and shapes than NCCL: each
method gives it tensors that it does know, over the same memory where that is possible, and else brings the results back
once the script has waited (``nccl_operations``).
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from . import nccl_operations as operations
from .devices import Devices, is_on_cpu
from .nccl_operations import FLOAT8, GroupCall, InOrder, Works, is_contiguous, is_dense, known, tensors_in
from .replacing import Note, Patches, plain, refuse

_OF_THE_CPU = ("gloo", "mpi")
"""Backends that serve tensors on the CPU."""
_KNOWN = ("", "undefined", "nccl", "gloo", "ucc")


_TAKEN = FLOAT8 | {
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.complex64, torch.complex128),
}
_OF_ANY_ORDER = ("send", "recv", "alltoall")
"""Methods that take any dense tensor; all others take contiguous ones."""
_BETWEEN_TWO = ("send", "recv")
"""Methods that wait for nothing that the group was given before."""
_WAIT_FOR_ALL = ("_cuda_synchronize", "_accelerator_synchronizeDevice")
_METHODS: dict[str, Callable[..., Any]] = {
    "broadcast gather scatter alltoall_base all_to_all_single": operations.move,
    "send recv": operations.transfer,
    "allgather": operations.all_gather,
    "alltoall": operations.all_to_all,
    "_allgather_base all_gather_single": operations.gather_into,
    "allgather_into_tensor_coalesced all_gather_single_coalesced": operations.gather_into,
    "allreduce allreduce_coalesced": operations.all_reduce,
    "reduce": operations.reduce,
    "reduce_scatter": operations.reduce_scatter_list,
    "_reduce_scatter_base reduce_scatter_single": operations.reduce_scatter,
    "reduce_scatter_tensor_coalesced reduce_scatter_single_coalesced": operations.reduce_scatter,
}
"""What is called in the place of ProcessGroup's methods; torch 2.13 gave some of them a second name."""
_UNSUPPORTED = {"recv_anysource": "recvAnysource", "allgather_coalesced": "allgather_coalesced"}


_LIBRARY = "_c10d_functional"
_registered: list[Any] = []
"""A kernel ends with the object that registered it."""


class Groups:
    """Makes groups on gloo and remembers which backend the script asked for."""

    def __init__(self, devices: Devices, note: Note) -> None:
        self._devices = devices
        self._note = note
        self._asked: dict[str, str] = {}
        """Backend by the group's name, which torch keeps unique."""

    def install(self, patches: Patches) -> None:
        """Replace what makes groups and what tells their backend."""
        if not torch.distributed.is_available():
            return
        home = torch.distributed.distributed_c10d
        patches.wrap(home, "init_process_group", self._init_process_group, torch.distributed)
        patches.wrap(home, "new_group", self._new_group, torch.distributed)
        patches.wrap(home, "get_backend", self._get_backend, torch.distributed)
        for module in (home, torch.distributed):
            patches.add(module, is_nccl_available=lambda: True, ProcessGroupNCCL=ProcessGroupNCCL)
        self._answer_for_devices(patches)
        Collectives(self._devices, self.device_types).install(patches)
        _install_functional(patches)

    def device_types(self, group: Any) -> tuple[str, ...]:
        """The types of devices that the backend serves for which the script asked."""
        asked = self._asked.get(_name(group), "gloo")
        if asked == "undefined":
            return "cpu", "cuda"
        if ":" in asked:
            return tuple(part.partition(":")[0] for part in asked.split(","))
        return ("cpu",) if asked in _OF_THE_CPU else ("cuda",)

    def _answer_for_devices(self, patches: Patches) -> None:
        """By these, torch decides where objects are put before they travel, and what a backend can do."""
        group = torch.distributed.ProcessGroup
        get_backend = group._get_backend
        patches.add(
            group,
            _device_types=property(lambda group: [torch.device(kind) for kind in self.device_types(group)]),
            _get_backend=lambda group, device: get_backend(group, torch.device("cpu")),
        )

    def _init_process_group(self, original: Any, *args: Any, **kwargs: Any) -> None:
        given = _by_name(original, args, kwargs)
        device = given.pop("device_id", None)
        if device is not None and (index := self._devices.index_of(device)) is not None:
            self._devices.use(index)
        if (asked := given.get("backend")) is None:
            asked = "undefined" if device is None else "nccl"
        plain(original, (), self._on_gloo(given))
        self._remember(torch.distributed.group.WORLD, asked)

    def _new_group(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        given = _by_name(original, args, kwargs)
        given.pop("device_id", None)
        asked = given.get("backend") or torch.distributed.get_backend()
        group = plain(original, (), self._on_gloo(given))
        self._remember(group, asked)
        return group

    def _get_backend(self, original: Any, group: Any = None) -> str:
        gloo: str = plain(original, (group,))
        return self._asked.get(_name(group or torch.distributed.group.WORLD), gloo)

    def _on_gloo(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments with every backend for GPUs replaced; what torch does not know, it refuses itself."""
        asked = str(given.get("backend") or "").lower()
        if asked not in _OF_THE_CPU and all(map(_is_known, asked.split(","))):
            given["backend"] = "gloo"
        if given.pop("pg_options", None) is not None:
            self._note("options", "options of the NCCL process group have no counterpart in gloo")
        return given

    def _remember(self, group: Any, asked: str) -> None:
        if name := _name(group):
            _never_end(group)
            self._asked[name] = torch.distributed.Backend(asked) if asked != "undefined" else asked


def _by_name(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(inspect.signature(function).parameters, args, strict=False)), **kwargs}


def _is_known(backend: str) -> bool:
    """Whether torch has a backend of this name, after a device or alone, or a package that it imported brought one."""
    name = backend.rpartition(":")[2]
    return name in _KNOWN or name.upper() in getattr(torch.distributed.Backend, "_plugins", ())


def _never_end(group: Any) -> None:
    """Let the group outlive its script: gloo's destructor joins its worker thread, which may wait for the GIL, with the
    GIL held, so scripts that end well with NCCL would hang or abort here."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _name(group: Any) -> str:
    """A rank that is not in a new group holds a marker without a name."""
    return str(getattr(group, "group_name", ""))


class ProcessGroupNCCL:
    """Stands where scripts look for NCCL's options."""

    class Options(ModuleType):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__("options")
            self.__dict__.update(kwargs)


class Collectives:
    """ProcessGroup's methods, as a group of NCCL answers them."""

    def __init__(self, devices: Devices, device_types: Callable[[Any], Sequence[str]]) -> None:
        self._devices = devices
        self._device_types = device_types
        self._coalescing: dict[str, list[Any]] = {}
        """The works of groups that are between _start_coalescing and _end_coalescing, by the group's name."""
        self._begun: defaultdict[str, deque[InOrder]] = defaultdict(deque)
        """Collectives of each group that nobody has waited for yet, by the group's name."""

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
            _end_coalescing=lambda group, device: self._in_order(
                group, Works(works.pop(group.group_name, []))
            ),
        )
        patches.add(torch._C, **dict.fromkeys(_WAIT_FOR_ALL, self._wait_for_all))
        patches.wrap(vars(torch.distributed)["Reducer"], "_set_forward_pass_work_handle", _set_work)
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
            if (works := self._coalescing.get(group.group_name)) is None:
                return work if name in _BETWEEN_TWO else self._in_order(group, work)
            works.append(work)
            return Works([])

        return method

    def _in_order(self, group: Any, work: Any) -> InOrder:
        return InOrder(work, self._begun[group.group_name])

    def _wait_for_all(self, *_: Any) -> None:
        for begun in list(self._begun.values()):
            if begun:
                begun[-1].wait()

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


def _set_work(original: Any, reducer: Any, work: Any, *args: Any) -> Any:
    """Under Join, torch's reducer waits for it in C++: how many real ranks are left, by which it divides."""
    return plain(original, (reducer, getattr(work, "gloos", work), *args))


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


def _install_functional(patches: Patches) -> None:
    """Give torch's functional collectives a kernel for the CPU, above the one for all devices.

    torch runs them below Python, so they are written out on the methods of the process group. Tensor parallelism,
    meshes and compiled code use them; they wait at once, so nothing is left for ``wait_tensor``.
    """
    library: Any = torch.library.Library(_LIBRARY, "IMPL")  # type: ignore[no-untyped-call]
    for name, kernel in _KERNELS.items():
        if hasattr(getattr(torch.ops, _LIBRARY), name):
            library.impl(name, kernel, "CPU")
    _registered.append(library)
    patches.callback(lambda: _registered.pop()._destroy())


def _group_of(group: Any) -> Any:
    kind, home = torch.distributed.ProcessGroup, torch._C._distributed_c10d
    if isinstance(group, str):
        return home._resolve_process_group(group)  # type: ignore[arg-type]
    return group if isinstance(group, kind) else kind.unbox(group)


def _with_operation(opts: Any, operation: str) -> Any:
    opts.reduceOp = getattr(torch.distributed.ReduceOp, operation.upper())
    return opts


def _all_reduce_(input: torch.Tensor, reduce_op: str, group_name: Any) -> torch.Tensor:
    opts = _with_operation(torch._C._distributed_c10d.AllreduceOptions(), reduce_op)
    _group_of(group_name).allreduce([input], opts).wait()
    return input


def _broadcast_(input: torch.Tensor, src: int, group_name: Any) -> torch.Tensor:
    opts = torch._C._distributed_c10d.BroadcastOptions()
    opts.rootRank = src
    _group_of(group_name).broadcast([input], opts).wait()
    return input


def _all_gather_out(
    input: torch.Tensor, group_size: int, group_name: Any, *, out: torch.Tensor
) -> torch.Tensor:
    """Along the first dimension, into a tensor that is there."""
    _group_of(group_name)._allgather_base(out, input.contiguous()).wait()
    return out


def _all_gather(input: torch.Tensor, group_size: int, group_name: Any) -> torch.Tensor:
    shape = (input.shape[0] * group_size, *input.shape[1:]) if input.dim() else (group_size,)
    return _all_gather_out(input, group_size, group_name, out=input.new_empty(shape))


def _reduce_scatter_out(
    input: torch.Tensor, reduce_op: str, group_size: int, group_name: Any, *, out: torch.Tensor
) -> torch.Tensor:
    """Along the first dimension, into a tensor that is there."""
    opts = _with_operation(torch._C._distributed_c10d.ReduceScatterOptions(), reduce_op)
    _group_of(group_name)._reduce_scatter_base(out, input.contiguous(), opts).wait()
    return out


def _reduce_scatter(input: torch.Tensor, reduce_op: str, group_size: int, group_name: Any) -> torch.Tensor:
    out = input.new_empty((input.shape[0] // group_size, *input.shape[1:]))
    return _reduce_scatter_out(input, reduce_op, group_size, group_name, out=out)


def _all_to_all_single(
    input: torch.Tensor, output_split_sizes: Sequence[int], input_split_sizes: Sequence[int], group_name: Any
) -> torch.Tensor:
    output = input.new_empty((sum(output_split_sizes), *input.shape[1:]))
    group = _group_of(group_name)
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
