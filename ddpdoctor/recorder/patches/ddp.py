"""DistributedDataParallel: what it wraps and with which flags, its communication hooks, Join, waits for other ranks."""

from __future__ import annotations

import functools
import inspect
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from ..bypassed_calls import watch_parts
from ..digest import digests, named
from ..events import training as events
from ..hooked import Hooked
from ..keys import names_inside
from ..patch import IN_FULL, Args, Kwargs, around, watch
from ..session import Session
from ..training import Training, Wrapper

_FLAGS = (
    *("broadcast_buffers", "find_unused_parameters", "static_graph", "gradient_as_bucket_view"),
    *("device_ids", "output_device", "bucket_cap_mb", "mixed_precision", "init_sync"),
)


def install(session: Session) -> None:
    """Watch constructors, hooks and Join, where this torch can train distributed at all."""
    if not session.torch.distributed.is_available():
        return
    training = Training.of(session)
    torch = session.torch
    wrapper = torch.nn.parallel.DistributedDataParallel
    begin_wrap = functools.partial(_tell_wrap, training, inspect.signature(wrapper.__init__))
    session.patch(wrapper, "__init__", watch(torch, begin_wrap, functools.partial(_tell_wrapped, training)))
    session.patch(wrapper, "_set_static_graph", watch(torch, functools.partial(_tell_static, training)))
    tell_hook = functools.partial(_tell_hook, training)
    register = functools.partial(Hooked.of(session).register, tell_hook)
    session.patch(wrapper, "register_comm_hook", around(register))
    session.patch(wrapper, "_register_builtin_comm_hook", watch(torch, tell_hook))
    for name, change in (("__enter__", 1), ("__exit__", -1)):
        count = functools.partial(_count_join, training, change)
        session.patch(torch.distributed.algorithms.join.Join, name, watch(torch, count))
    _watch_waits(session, wrapper)


def _watch_waits(session: Session, wrapper: Any) -> None:
    """Watch waits for other ranks that are neither a backward nor a collective of the script's, in detailed steps."""
    waits = Training.of(session).waits

    def briefly(original: Any, args: Args, kwargs: Kwargs) -> Any:
        return IN_FULL if session.detailed else original(*args, **kwargs)

    watched = watch(session.torch, lambda *_: waits.begin() or None, lambda *_: waits.end(), briefly)
    session.patch(session.torch.distributed.Work, "wait", watched)
    session.patch(wrapper, "_distributed_broadcast_coalesced", watched)  # of buffers, before a forward


def _tell_wrap(training: Training, signature: inspect.Signature, args: Any, kwargs: Any) -> Any:
    """Before the constructor, too: it waits for all ranks, and where their models differ some wait for ever."""
    given = signature.bind(*args, **kwargs)
    given.apply_defaults()
    ddp, module, group = args[0], given.arguments["module"], given.arguments.get("process_group")
    index = len(training.wrappers)
    training.constructed += 1
    wrapper = events.Wrapper(
        index,
        training.session.here(),
        time.monotonic(),
        type(_inside(module)).__name__,
        library=training.session.sites.library(),
        parameters=tuple(_describe_parameter(*parameter) for parameter in _own_parameters(module, index)),
        buffers=tuple(name.replace("_orig_mod.", "") for name, _ in module.named_buffers()),
        flags={name: _plain(value) for name, value in given.arguments.items() if name in _FLAGS},
        ranks=_members(training, group),
        ready=False,
        id=training.constructed,
    )
    training.session.event(wrapper, now=True)
    return ddp, module, wrapper


def _tell_wrapped(training: Training, begun: Any, _: Any, error: BaseException | None) -> None:
    ddp, module, wrapper = begun
    if error is not None:
        wrapper.failed = f"{type(error).__name__}: {error}"[:2000]
        training.session.event(wrapper, now=True)
        return
    parameters = [parameter for _, parameter in _own_parameters(module)]
    wrapper.digests = named(
        [parameter.key for parameter in wrapper.parameters], digests(training.torch, parameters)
    )
    # What the constructor made of it: its default stands in no signature of newer versions.
    wrapper.flags = {**wrapper.flags, "broadcast_buffers": bool(ddp.broadcast_buffers)}
    wrapper.ready = True
    training.session.event(wrapper)
    _know(training, ddp, module, wrapper)


def _describe_parameter(key: str, parameter: Any) -> events.Parameter:
    dtype, device = str(parameter.dtype).replace("torch.", ""), str(parameter.device)
    return events.Parameter(key, tuple(parameter.shape), dtype, bool(parameter.requires_grad), device)


def _own_parameters(module: Any, index: int = 0) -> Iterator[tuple[str, Any]]:
    """The parameters that the wrapper takes care of, by their keys."""
    ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
    for (name, parameter), (full, _) in zip(names_inside(module), module.named_parameters(), strict=True):
        if full not in ignored:
            yield name if index <= 0 else f"{name} (wrapper {index})", parameter


def _members(training: Training, group: Any) -> tuple[int, ...] | None:
    """The members of a process group as global ranks; None for the default group."""
    dist = training.torch.distributed
    if group is None or not dist.is_initialized() or group is dist.group.WORLD:
        return None
    return tuple(dist.get_process_group_ranks(group))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return [_plain(element) for element in value] if isinstance(value, list | tuple) else str(value)


def _inside(module: Any) -> Any:
    """The user's module, where torch.compile has put one of its own around it."""
    return getattr(module, "_orig_mod", module)


def _know(training: Training, ddp: Any, module: Any, event: events.Wrapper) -> None:
    trainable = {}
    for key, parameter in _own_parameters(module, event.index):
        training.keys.add(parameter, key, wrapped=True)
        if parameter.requires_grad:
            trainable[id(parameter)] = weakref.ref(parameter)
    wrapper = Wrapper(event.index, weakref.ref(ddp), ddp.process_group, trainable, event=event)
    training.add(ddp, wrapper)
    watch_parts(training, wrapper, _wholes(module))


def _wholes(module: Any) -> Iterable[Any]:
    inside = _inside(module)
    return (module,) if inside is module else (module, inside)


def _tell_hook(training: Training, args: Args, kwargs: Kwargs) -> None:
    given = dict(zip(("self", "state", "hook"), args, strict=False)) | kwargs
    hook = given.get("hook", kwargs.get("comm_hook_type", given.get("state")))
    wrapper = training.wrapper(given.get("self"))
    code = getattr(hook, "__code__", None)
    if code is not None:
        training.hooks.add(code)
    if wrapper is not None and wrapper.event is not None:
        wrapper.event.hook = getattr(hook, "__qualname__", None) or str(hook)
        wrapper.event.hooked_at = training.session.here()
        training.session.event(wrapper.event)


def _tell_static(training: Training, args: Args, kwargs: Kwargs) -> None:
    wrapper = training.wrapper(args[0])
    if wrapper is not None and wrapper.event is not None:
        wrapper.event.flags = {**wrapper.event.flags, "static_graph": True}
        training.session.event(wrapper.event)


def _count_join(training: Training, change: int, args: Args, _: Kwargs) -> None:
    if getattr(args[0], "_enable", True):
        training.joined += change
