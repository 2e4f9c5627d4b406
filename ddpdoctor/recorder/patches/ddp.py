"""DistributedDataParallel: what it wraps and with which flags, its communication hooks, Join, waits for other ranks."""

from __future__ import annotations

import functools
import inspect
import time
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

from ..bypassed_calls import watch_parts
from ..digest import digests, few, named, unseen
from ..events import training as events
from ..events.updates import HookedGradient
from ..keys import names_inside
from ..patch import Args, Kwargs, around, guarded, hide_from_compiler, watch
from ..session import Session
from ..training import Training, TrainingPart, Wrapper
from .losses import factors_of_means

_FLAGS = (
    *("broadcast_buffers", "find_unused_parameters", "static_graph", "gradient_as_bucket_view"),
    *("device_ids", "output_device", "bucket_cap_mb", "mixed_precision", "init_sync"),
)


_HOOKED_UPDATES = 4
"""From the start; a hook does the same in every step."""
_MOST_HOOKED = 8
"""Gradients in each."""


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
    # Of buffers, before a forward.
    begin_wait, end_wait = (lambda *_: training.waits.begin() or None), (lambda *_: training.waits.end())
    waits = watch(torch, begin_wait, end_wait, session.unless_detailed)
    session.patch(wrapper, "_distributed_broadcast_coalesced", waits)


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
    wrapper.digests = named([it.key for it in wrapper.parameters], digests(training.torch, parameters))
    # What the constructor made of it: its default stands in no signature of newer versions.
    wrapper.flags = {**wrapper.flags, "broadcast_buffers": bool(ddp.broadcast_buffers)}
    wrapper.ready = True
    training.not_waited_for.clear()  # for the weights of rank 0, which every rank has now
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
    inside = _inside(module)
    watch_parts(training, wrapper, (module,) if inside is module else (module, inside))


def _tell_hook(training: Training, args: Args, kwargs: Kwargs) -> None:
    given = dict(zip(("self", "state", "hook"), args, strict=False)) | kwargs
    hook = given.get("hook", kwargs.get("comm_hook_type", given.get("state")))
    wrapper = training.wrapper(given.get("self"))
    if (code := getattr(hook, "__code__", None)) is not None:
        training.hooks.add(code)
    if wrapper is not None and wrapper.event is not None:
        wrapper.event.hook = getattr(hook, "__qualname__", None) or str(hook)
        wrapper.event.hooked_at = training.session.here()
        training.session.event(wrapper.event)


def _tell_static(training: Training, args: Args, kwargs: Kwargs) -> None:
    if (wrapper := training.wrapper(args[0])) is not None and wrapper.event is not None:
        wrapper.event.flags = {**wrapper.event.flags, "static_graph": True}
        training.session.event(wrapper.event)


def _count_join(training: Training, change: int, args: Args, _: Kwargs) -> None:
    if getattr(args[0], "_enable", True):
        training.joined += change


class Hooked(TrainingPart):
    """What communication hooks make of gradients in this training step: a few of their values before the hook, after
    it and at the update.

    The same of gradients that no wrapper averages: then the script does it, between the backward and the update. A mean
    over ranks is known only where the ranks' values lie side by side, so each writes down its own.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.records: dict[int, tuple[Any, HookedGradient]] = {}
        """The parameters, and what is told of them once all of it is known."""
        self.factor: float | None = None
        """Of the last loss, as far as it is a mean."""

    def around(self, wrapper: Wrapper, hook: Any) -> Any:
        """A hook that does the same, and looks at what it is given."""
        if not isinstance(hook, FunctionType | MethodType) or str(hook.__module__).startswith("torch."):
            return hook
        is_compiling, look = self.torch.compiler.is_compiling, self._look

        @functools.wraps(hook)
        def call(state: Any, bucket: Any) -> Any:
            if not is_compiling():
                look(wrapper, bucket)
            return hook(state, bucket)

        hide_from_compiler(self.torch, call)
        return call

    @guarded
    def _look(self, wrapper: Wrapper, bucket: Any) -> None:
        if self.session.steps >= _HOOKED_UPDATES or self.training.joined or not self.training.in_backward:
            return
        with unseen(self.torch):
            pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
            parameter, gradient = max(pairs, key=lambda pair: pair[0].numel())
            if id(parameter) in self.records or len(self.records) < _MOST_HOOKED:
                self._note(parameter, wrapper.index, gradient)

    def _note(self, parameter: Any, wrapper: int | None, gradient: Any) -> None:
        record = HookedGradient(self.session.steps, wrapper, "", few(gradient))
        self.records[id(parameter)] = parameter, record

    @guarded
    def begin(self, loss: Any) -> None:
        if self.session.steps >= _HOOKED_UPDATES or not isinstance(loss, self.torch.Tensor):
            return
        with unseen(self.torch):
            means = factors_of_means(self.torch, loss.grad_fn, self.training.scales, wait=False)
            self.factor = next((factor for _, factor in means), None)

    @guarded
    def end(self) -> None:
        if not self.records and self.session.steps >= _HOOKED_UPDATES:
            return
        with unseen(self.torch):
            if not self.training.wrappers:
                self._look_at_own()
            for parameter, record in self.records.values():
                if not record.got and parameter.grad is not None:
                    record.got = few(parameter.grad)

    def _look_at_own(self) -> None:
        torch, dist = self.torch, self.torch.distributed
        if self.session.steps >= _HOOKED_UPDATES or not dist.is_available() or not dist.is_initialized():
            return
        # What a hook has made of a gradient by now is not what the rank's own batch gave.
        plain = [
            p
            for p in self.training.held()
            if type(p.grad) is torch.Tensor and p.grad.layout is torch.strided
            if not (p._backward_hooks or p._post_accumulate_grad_hooks)
        ]
        for parameter in sorted(plain, key=lambda p: -p.numel())[:_MOST_HOOKED]:
            self._note(parameter, None, parameter.grad)

    @guarded
    def updating(self) -> None:
        records, self.records = self.records, {}
        for parameter, record in records.values():
            if not record.got or parameter.grad is None:
                continue
            with unseen(self.torch):
                record.used = few(parameter.grad)
            record.got = record.used if record.wrapper is None else record.got
            record.step, record.key = self.session.steps, str(self.training.keys.get(parameter))
            record.factor, record.backwards = self.factor, self.training.backwards
            self.session.event(record)

    def register(
        self, tell: Callable[[Args, Kwargs], None], original: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """The script registers a hook; what stands for it is not copied and saved with the wrapper."""
        if not (given := self._given(tell, args, kwargs)):
            return original(*args, **kwargs)
        result = original(**given)
        self._restore(given["self"], given["hook"])
        return result

    @guarded
    def _given(self, tell: Callable[[Args, Kwargs], None], args: Args, kwargs: Kwargs) -> Kwargs:
        tell(args, kwargs)
        given = dict(zip(("self", "state", "hook"), args, strict=False)) | kwargs
        wrapper = self.training.wrapper(given["self"])
        return {} if wrapper is None else given | {"hook": self.around(wrapper, given["hook"])}

    @guarded
    def _restore(self, ddp: Any, hook: Any) -> None:
        kept = getattr(ddp, "_comm_hooks", None)
        if kept and kept[-1][0] is hook and hasattr(hook, "__wrapped__"):
            kept[-1] = (hook.__wrapped__, *kept[-1][1:])
