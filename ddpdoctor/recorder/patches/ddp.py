"""DistributedDataParallel: what it wraps and with which flags, its communication hooks, and Join."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..digest import digests
from ..guard import guarded
from ..hooked import watch_hook
from ..keys import names_inside
from ..parts import watch_parts
from ..patch import watch
from ..session import Session
from ..training import Training, Wrapper

_FLAGS = (
    *("broadcast_buffers", "find_unused_parameters", "static_graph", "gradient_as_bucket_view"),
    *("device_ids", "output_device", "bucket_cap_mb", "mixed_precision", "init_sync"),
)
_FAMILIES = {"SyncBatchNorm": "SyncBatchNorm", "_BatchNorm": "BatchNorm", "_DropoutNd": "Dropout"}


def install(session: Session) -> None:
    """Watch constructors, hooks and Join, where this torch can train distributed at all."""
    if not session.torch.distributed.is_available():
        return
    training = Training.of(session)
    torch = session.torch
    wrapper = torch.nn.parallel.DistributedDataParallel
    begin_wrap = functools.partial(_tell_wrap, training, inspect.signature(wrapper.__init__))
    session.patch(wrapper, "__init__", watch(torch, begin_wrap, functools.partial(_tell_wrapped, training)))
    session.patch(
        wrapper, "_set_static_graph", watch(torch, functools.partial(_tell_static, training), _nothing)
    )
    tell_hook = functools.partial(_tell_hook, training)
    session.patch(wrapper, "register_comm_hook", watch_hook(training, tell_hook))
    session.patch(wrapper, "_register_builtin_comm_hook", watch(torch, tell_hook, _nothing))
    join = torch.distributed.algorithms.join.Join
    session.patch(join, "__enter__", _counting(training, 1))
    session.patch(join, "__exit__", _counting(training, -1))


def _tell_wrap(training: Training, signature: inspect.Signature, args: Any, kwargs: Any) -> Any:
    """Before the constructor, too: it waits for all ranks, and where their models differ some wait for ever."""
    given = signature.bind(*args, **kwargs)
    given.apply_defaults()
    ddp, module, group = args[0], given.arguments["module"], given.arguments.get("process_group")
    index = len(training.wrappers)
    training.session.event(
        "ddp.wrap",
        at=training.session.here(),
        now=True,
        w=index,
        module=type(_inside(module)).__name__,
        parameters=[_describe_parameter(*one) for one in _own_parameters(module, index)],
        buffers=[name.replace("_orig_mod.", "") for name, _ in module.named_buffers()],
        modules=_families(module),
        flags={name: _plain(value) for name, value in given.arguments.items() if name in _FLAGS},
        ranks=_members(training, group),
    )
    return ddp, module, index


def _tell_wrapped(training: Training, begun: Any, _: Any, error: BaseException | None) -> None:
    ddp, module, index = begun
    if error is not None:
        training.session.event(
            "ddp.refused", now=True, w=index, failed=f"{type(error).__name__}: {error}"[:2000]
        )
        return
    own = [parameter for _, parameter in _own_parameters(module)]
    broadcast = bool(ddp.broadcast_buffers)
    training.session.event(
        "ddp.wrapped", w=index, digests=digests(training.torch, own), broadcast_buffers=broadcast
    )
    _know(training, ddp, module, index)


def _describe_parameter(key: str, parameter: Any) -> list[Any]:
    dtype, device = str(parameter.dtype).replace("torch.", ""), str(parameter.device)
    return [key, list(parameter.shape), dtype, bool(parameter.requires_grad), device]


def _own_parameters(module: Any, index: int = 0) -> Iterator[tuple[str, Any]]:
    """The parameters that the wrapper takes care of, by their keys."""
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    for (name, parameter), (full, _) in zip(names_inside(module), module.named_parameters(), strict=True):
        if full not in ignored:
            yield name if index <= 0 else f"{name} (wrapper {index})", parameter


def _families(module: Any) -> dict[str, int]:
    counted: dict[str, int] = {}
    for one in module.modules():
        names = [kind.__name__ for kind in type(one).__mro__]
        for name in {_FAMILIES.get(name) for name in names if name in _FAMILIES} - {None}:
            if name != "BatchNorm" or "SyncBatchNorm" not in names:
                counted[str(name)] = counted.get(str(name), 0) + 1
    return counted


def _members(training: Training, group: Any) -> list[int] | None:
    """The members of a process group as global ranks; None for the default group."""
    dist = training.torch.distributed
    if group is None or not dist.is_initialized() or group is dist.group.WORLD:
        return None
    return list(dist.get_process_group_ranks(group))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else str(value)


def _inside(module: Any) -> Any:
    """The user's module, where torch.compile has put one of its own around it."""
    return getattr(module, "_orig_mod", module)


def _know(training: Training, ddp: Any, module: Any, index: int) -> None:
    trainable = {}
    for key, parameter in _own_parameters(module, index):
        training.keys.add(parameter, key, wrapped=True)
        if parameter.requires_grad:
            trainable[id(parameter)] = weakref.ref(parameter)
    wrapper = Wrapper(index, weakref.ref(ddp), ddp.process_group, trainable)
    training.add(ddp, wrapper)
    watch_parts(training, wrapper, _wholes(module))


def _wholes(module: Any) -> Iterable[Any]:
    inside = _inside(module)
    return (module,) if inside is module else (module, inside)


def _tell_hook(training: Training, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = dict(zip(("self", "state", "hook"), args, strict=False)) | kwargs
    hook = given.get("hook", kwargs.get("comm_hook_type", given.get("state")))
    wrapper = training.wrapper(given.get("self"))
    code = getattr(hook, "__code__", None)
    if code is not None:
        training.hooks.add(code)
    if wrapper is not None:
        name = getattr(hook, "__qualname__", None) or str(hook)
        training.session.event("ddp.hook", at=training.session.here(), w=wrapper.index, name=name)


def _tell_static(training: Training, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wrapper = training.wrapper(args[0])
    if wrapper is not None:
        training.session.event("ddp.static", w=wrapper.index)


def _nothing(*_: Any) -> None:
    """There is nothing to say after it."""


def _counting(training: Training, change: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    @guarded
    def count(join: Any) -> None:
        if getattr(join, "_enable", True):
            training.joined += change

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            count(self)
            return original(self, *args, **kwargs)

        return call

    return make
