"""Methods that say where a tensor or a storage is, or bring it elsewhere; and how storages are saved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..patch import Args, Kwargs
from .devices import Devices, Placement, mark, mark_storage, storage_gpu
from .replacing import Patches, plain, refuse

Tensor = torch.Tensor
_BEFORE_THE_CPU = 1
"""torch asks the packages that know a location in this order; its own begin with 10."""


def install(placement: Placement, patches: Patches) -> None:
    """Answer for devices, and move tensors between simulated ones."""
    _answer(placement)
    # Its arguments are checked before a mode is asked, and a stream here is none of torch's.
    patches.set(Tensor, "record_stream", lambda tensor, stream: None)
    _move(placement)
    _store(placement, patches)
    _save_and_load(placement.devices, patches)


def _answer(placement: Placement) -> None:
    of, rules = placement.devices.of, placement.rules

    def device(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> torch.device:
        gpu = of(args[0])
        return plain(func, args) if gpu is None else torch.device("cuda", gpu)

    rules[Tensor.device.__get__] = device
    rules[Tensor.is_cuda.__get__] = lambda func, args, kwargs: of(args[0]) is not None  # type: ignore[attr-defined]
    rules[Tensor.is_cpu.__get__] = (  # type: ignore[attr-defined]
        lambda func, args, kwargs: of(args[0]) is None and plain(func, args)
    )
    rules[Tensor.get_device] = lambda func, args, kwargs: -1 if of(args[0]) is None else of(args[0])
    rules[Tensor.is_pinned] = lambda func, args, kwargs: getattr(args[0].untyped_storage(), "_pinned", False)


def _move(placement: Placement) -> None:
    rules, devices = placement.rules, placement.devices

    def cuda(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tensor:
        index = devices.index_of(args[1] if len(args) > 1 else kwargs.get("device"))
        return placement.move(args[0], devices.thread.current if index is None else index)

    def type_as(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Tensor:
        tensor, other = args[0], args[1] if len(args) > 1 else kwargs["other"]
        return placement.move(tensor, devices.of(other), dtype=other.dtype)

    rules[Tensor.to] = lambda func, args, kwargs: _to(placement, args, kwargs)
    rules.update({Tensor.cuda: cuda, Tensor.type_as: type_as})
    rules[Tensor.cpu] = lambda func, args, kwargs: placement.move(args[0], None)
    rules.update(dict.fromkeys((torch._C._nn._parse_to, torch.device), _named))
    rules[Tensor.pin_memory] = lambda func, args, kwargs: _pin(args[0])
    rules[Tensor.type] = lambda func, args, kwargs: _type(placement, func, args, kwargs)


def _named(func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """A number alone is the index of a GPU where torch has any."""
    if args and type(args[0]) is int:
        args = (torch.device("cuda", args[0]), *args[1:])
    if type(kwargs.get("device")) is int:
        kwargs = {**kwargs, "device": torch.device("cuda", kwargs["device"])}
    return plain(func, args, kwargs)


def _to(placement: Placement, args: Args, kwargs: Kwargs) -> Tensor:
    tensor = args[0]
    options = {name: it for name, it in kwargs.items() if name not in {"device", "other", "non_blocking"}}
    wanted = [*args[1:], *(kwargs[name] for name in ("device", "other") if name in kwargs)]
    target, flags = placement.devices.of(tensor), []
    for value in wanted:
        if isinstance(value, torch.dtype):
            options["dtype"] = value
        elif isinstance(value, Tensor):
            target, options["dtype"] = placement.devices.of(value), value.dtype
        elif isinstance(value, bool):
            flags.append(value)
        elif value is not None:
            target = placement.devices.index_of(value)
            if target is None and torch.device(value).type != "cpu":
                options["device"] = value
    # Positional flags are non_blocking and copy, in this order.
    if len(flags) > 1:
        options["copy"] = flags[1]
    return placement.move(tensor, target, **options)


def _pin(tensor: Tensor) -> Tensor:
    storage = tensor.untyped_storage()
    if getattr(storage, "_pinned", False):
        return tensor
    pinned = tensor.clone()
    pinned.untyped_storage()._pinned = True  # type: ignore[attr-defined]
    return pinned


def _type(placement: Placement, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Tensor.type names the device too: torch.cuda.FloatTensor."""
    tensor = args[0]
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    gpu = placement.devices.of(tensor)
    if wanted is None:
        name: str = plain(func, (tensor,))
        return name if gpu is None else name.replace("torch.", "torch.cuda.", 1)
    if isinstance(wanted, torch.dtype):
        return placement.move(tensor, gpu, dtype=wanted)
    name = wanted if isinstance(wanted, str) else f"{wanted.__module__}.{wanted.__name__}"
    dtype = getattr(torch, name.rsplit(".", 1)[-1]).dtype
    if ".cuda." not in name:
        return placement.move(tensor, None, dtype=dtype)
    return placement.move(tensor, placement.devices.thread.current if gpu is None else gpu, dtype=dtype)


def _store(placement: Placement, patches: Patches) -> None:
    """Storages are moved too, by the functions that scripts give to torch.load."""

    def cuda(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
        index = placement.devices.index_of(device)
        target = placement.devices.use(placement.devices.thread.current if index is None else index)
        return storage if storage_gpu(storage) == target else mark_storage(storage.clone(), target)

    for kind in (torch.storage._StorageBase, torch.storage.TypedStorage):
        patches.set(kind, "cuda", cuda)
    _legacy_types(placement, patches)


def _legacy_types(placement: Placement, patches: Patches) -> None:
    """torch.cuda.FloatTensor and its like, which old scripts construct and ask isinstance about."""
    for name in ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool"):
        kind = f"{name}Tensor"
        patches.set(torch.cuda, kind, _legacy_type(placement, kind))


def _legacy_type(placement: Placement, name: str) -> type:
    plain = getattr(torch, name)

    class Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, Tensor) and value.dtype is plain.dtype and value.is_cuda

        def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
            return mark(plain(*args, **kwargs), placement.devices.use(placement.devices.thread.current))  # type: ignore[no-any-return]

    return Meta(name, (), {"__module__": "torch.cuda", "dtype": plain.dtype, "is_cuda": True})


def _save_and_load(devices: Devices, patches: Patches) -> None:
    """Tensors are saved with their simulated GPU and come back to it, as on real ones."""

    def restore(storage: Any, location: str) -> Any:
        """The deserializer: put a storage on the GPU that it was saved from or is mapped to."""
        if not location.startswith("cuda"):
            return None
        index = devices.index_of(location)
        count = devices.count()
        if index is None or index >= count:
            refuse(
                RuntimeError(
                    f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is "
                    f"{count}. Please use torch.load with map_location to map your storages to an existing device."
                )
            )
        devices.use(index)
        return mark_storage(storage, index)

    def tag(storage: Any) -> str | None:
        gpu = storage_gpu(storage)
        return None if gpu is None else f"cuda:{gpu}"

    registry = torch.serialization._package_registry
    entry = (_BEFORE_THE_CPU, tag, restore)
    registry.insert(0, entry)
    patches.callback(lambda: registry.remove(entry))
