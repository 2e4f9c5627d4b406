"""Forwards: of the wrapper, around it, and of copies of the wrapped module; and which modules are in eval mode."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ..digest import digests, is_captured, named, sample, text, unseen
from ..events.training import Forward, ForwardWeights
from ..keys import modules_inside, names_inside
from ..loop_numbers import Watched
from ..passes import WITHOUT_GRAD
from ..patch import IN_FULL, Args, Kwargs, after_call, guarded, watch
from ..randomness import StepDraws
from ..session import Session
from ..sites import variables_of
from ..training import Training, Wrapper, tell_buffers
from ..where import Where

EVALUATED = "evaluated"
"""Shared under this name: when a forward in eval mode ended last, and the training steps until then."""
_OFTEN = 0.25
"""Seconds between two forwards without autograd that are written down beside detailed steps."""
_LARGEST_MODEL = 256e6
"""Bytes of a model whose weights are all looked at where no optimizer of torch changes them; of a larger one few."""
_FEW = 4


_MOST_NAMES = 32


def install(session: Session) -> None:
    """Watch DistributedDataParallel.forward, and where a CUDA graph captures a step, which is counted only."""
    if not session.torch.distributed.is_available():
        return
    training = Training.of(session)
    wrapper = session.torch.nn.parallel.DistributedDataParallel
    parts = (functools.partial(part, training) for part in (_begin_wrapped, end, _briefly))
    session.patch(wrapper, "forward", watch(session.torch, *parts))
    session.patch(session.torch.nn.Module, "train", after_call(functools.partial(_look_at_mode, training)))
    captured = watch(session.torch, lambda *_: setattr(session, "detailed", False))
    session.patch(session.torch.cuda.CUDAGraph, "capture_begin", captured)


def _look_at_mode(training: Training, _: Any, args: Args, kwargs: Kwargs) -> None:
    """The user put a module into a mode, by Module.eval too."""
    mode = args[1] if len(args) > 1 else kwargs.get("mode", True)
    if not mode and not training.torch.compiler.is_compiling():
        for wrapper, ddp in training.living():
            if args[0] is ddp or args[0] is vars(ddp).get("_modules", {}).get("module"):
                wrapper.eval_at = caller_of(training.session, args[0])


def _briefly(training: Training, original: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    if not training.quiet or not training.torch.is_grad_enabled():
        return IN_FULL
    training.updated = False
    training.busy += 1
    try:
        return original(*args, **kwargs)
    finally:
        training.busy -= 1


def _begin_wrapped(training: Training, args: Args, kwargs: Kwargs) -> Any:
    ddp = args[0]
    wrapper = training.wrapper(ddp)
    return None if wrapper is None else begin(training, wrapper, ddp, (args[1:], kwargs), around=False)


def begin(training: Training, wrapper: Wrapper, ddp: Any, given: Any, *, around: bool) -> Any:
    """Look at what is there before a forward; what was seen is written down after it."""
    grad = training.torch.is_grad_enabled()
    synced = bool(ddp.require_backward_grad_sync)
    if grad and training.updated:
        training.open_step()
    event = None
    if training.session.detailed if grad else _is_told(training, wrapper):
        at = caller_of(training.session, ddp.module) if around else training.session.here()
        event = Forward(0.0, at, wrapper.index, around, grad, synced=synced)
        _look(training, wrapper, ddp, given, event)
        if grad and not around:
            _tell_weights(training, wrapper, ddp, event)
    if not grad and wrapper.evaluated != training.session.steps:
        wrapper.evaluated = training.session.steps
        guarded(tell_buffers)(training.session, "evaluation", at=training.session.here(), only=wrapper)
    if grad and not training.busy:
        StepDraws.of(training.session).enter(event.at if event else None)
        if not around and not training.joined:
            Watched.of(training.session).look()
    wrapper.depth += 1
    training.enter()
    return wrapper, event, time.monotonic(), training.waits.idle(), grad and synced and not around


def caller_of(session: Session, module: Any) -> Where | None:
    """The user's line that called the wrapped module, whichever of its methods that came in by."""
    inside = getattr(module, "_orig_mod", module)
    frame: FrameType | None = sys._getframe(1)
    outermost = None
    while frame is not None:
        code = frame.f_code
        # By identity: what stands there may compare in its own way.
        is_method = "." in getattr(code, "co_qualname", ".").rpartition("<locals>.")[2]  # from Python 3.11 on
        first = variables_of(frame).get(code.co_varnames[0]) if code.co_argcount and is_method else None
        if first is not None and (first is module or first is inside):
            outermost = frame
        frame = frame.f_back
    own = next(session.sites.own_frames(outermost and outermost.f_back), None)
    return session.here() if own is None else session.sites.site(own.f_code, own.f_lineno, own.f_lasti)


def _is_told(training: Training, wrapper: Wrapper) -> bool:
    now = time.monotonic()
    if (
        training.session.steps == wrapper.evaluated
        and now - wrapper.written < _OFTEN
        and not training.session.detailed
    ):
        return False
    wrapper.written = now
    return True


@guarded
def _look(training: Training, wrapper: Wrapper, ddp: Any, given: Any, event: Forward) -> None:
    torch = training.torch
    event.training = bool(ddp.module.training)
    first = next(_tensors(torch, given), None)
    digested = training.is_digested
    if first is not None:
        event.batch = int(first.shape[0]) if first.dim() else 1
        if digested:
            with unseen(torch):
                event.input = text(sample(torch, first))
    if event.training and not event.grad and wrapper.evaluated != training.session.steps:
        event.batch_norms = sum(_keeps_statistics(torch, module) for module in modules_inside(ddp.module))
    if event.grad:
        event.unused = _unused(wrapper, ddp) if ddp.find_unused_parameters else None
        if training.is_early or digested:
            modules = modules_inside(ddp.module)
            event.unknown = _unknown(wrapper, ddp, modules)
            event.evaluating = in_eval_mode(torch, ddp.module, modules, training.session.sites.is_foreign)
            event.eval_at = wrapper.eval_at if event.evaluating else None
            if digested:
                _look_at_layers(torch, modules, first, event)


@guarded
def _tell_weights(training: Training, wrapper: Wrapper, ddp: Any, event: Forward) -> None:
    """Write down the weights at the second forward, the fourth, the eighth, where no optimizer's step shows all."""
    wrapper.trained += 1
    number = wrapper.trained
    if number < 2 or number & (number - 1) or training.joined:
        return
    parameters = [p for _, p in names_inside(ddp.module) if training.keys.is_wrapped(p)]
    if training.session.steps and {id(p) for p in parameters if p.requires_grad} <= set(
        map(id, training.held())
    ):
        return
    if sum(p.numel() * p.element_size() for p in parameters) > _LARGEST_MODEL:
        parameters = parameters[:_FEW]
    keys = [training.keys.get(parameter) or "" for parameter in parameters]
    weights = named(keys, digests(training.torch, parameters))
    training.session.event(ForwardWeights(wrapper.index, number, time.monotonic(), event.at, weights))


def _tensors(torch: Any, given: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(given, torch.Tensor):
        yield given
    elif depth < 4 and isinstance(given, list | tuple | dict):
        for element in given.values() if isinstance(given, dict) else given:
            yield from _tensors(torch, element, depth + 1)


def _unknown(wrapper: Wrapper, ddp: Any, modules: list[Any]) -> tuple[str, ...]:
    """Trainable parameters that were not there, or were frozen, when the module was wrapped."""
    known = wrapper.trainable

    def is_unknown(parameter: Any) -> bool:
        of_id = known.get(id(parameter))
        return parameter.requires_grad and (of_id is None or of_id() is not parameter)

    held = [parameter for module in modules for parameter in module._parameters.values()]
    # Names take three times as long as the parameters.
    if not any(parameter is not None and is_unknown(parameter) for parameter in held):
        return ()
    ignored = getattr(ddp, "parameters_to_ignore", ())
    named = names_inside(ddp.module)
    return tuple(name for name, parameter in named if is_unknown(parameter) and name not in ignored)


def _unused(wrapper: Wrapper, ddp: Any) -> int | None:
    """What DDP's own statistics say of the last iteration that they are of, once each."""
    statistics = ddp._get_ddp_logging_data()
    iteration = int(statistics.get("iteration") or 0)
    if iteration <= max(1, wrapper.counted):
        return None
    wrapper.counted = iteration
    return int(statistics.get("unused_parameter_size") or 0)


def _look_at_layers(torch: Any, modules: list[Any], first: Any, event: Forward) -> None:
    norms = drops = 0
    plain, synced = torch.nn.modules.batchnorm._BatchNorm, torch.nn.SyncBatchNorm
    for module in modules:
        if module.training:
            norms += isinstance(module, plain) and not isinstance(module, synced)
            drops += _draws(torch, module)
    event.batch_norms = norms
    event.random = _random(torch, first) if drops else None


def _keeps_statistics(torch: Any, module: Any) -> bool:
    """Whether a forward changes running statistics of a module: BatchNorm in train mode."""
    norm = isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
    return norm and module.training and module.running_mean is not None


def _draws(torch: Any, module: Any) -> bool:
    """Whether a module in train mode drops values at random."""
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, torch.nn.MultiheadAttention | torch.nn.RNNBase):
        return bool(module.dropout > 0)
    return False


def _random(torch: Any, first: Any) -> str | None:
    """The state that the first tensor's device draws from, read and left as it is."""
    if is_captured(torch):
        return None
    if first is not None and first.device.type == "cuda":
        state = torch.cuda.default_generators[first.device.index or 0].get_state()
    else:
        state = torch.default_generator.get_state()
    return text(digests(torch, [state])[0])


def end(training: Training, begun: Any, _: Any, error: BaseException | None) -> None:
    wrapper, event, since, idle, arms = begun
    wrapper.depth -= 1
    training.leave()
    seconds = time.monotonic() - since
    if wrapper.depth == 0:
        training.spend("forward", seconds, idle)
    if arms and error is None:
        wrapper.armed = True
        training.session.thread = threading.get_ident()
    if event and not event.grad:
        training.session.shared[WITHOUT_GRAD] = time.monotonic()
    if event and not (event.grad or event.training):
        training.session.shared[EVALUATED] = time.monotonic(), training.session.steps
    if event and event.grad and not training.busy:
        StepDraws.of(training.session).look(event.at, inside=True)
    if event:
        event.time, event.seconds = since, round(seconds, 6)
        training.session.event(event)


def in_eval_mode(
    torch: Any, root: Any, modules: list[Any], is_foreign: Callable[[str], bool]
) -> tuple[str, ...] | None:
    """The outermost modules in which all that act by their mode are in eval mode, ``("",)`` where the whole model is;
    None where no module acts by its mode. What those of a foreign file, a library's, do by their mode is not known."""
    acting = {id(module) for module in modules if _acts(torch, module, is_foreign)}
    if not acting:
        return None
    evaluating = {id(module) for module in modules if not module.training} & acting
    return tuple(_outermost(root, acting, evaluating)[:_MOST_NAMES]) if evaluating else ()


def _outermost(root: Any, acting: set[int], evaluating: set[int]) -> list[str]:
    """The names of the outermost modules that hold acting ones, all of them in eval mode."""
    names: list[str] = []
    known: set[int] = set()

    def visit(module: Any, name: str) -> tuple[int, int]:
        """Count those that act in a module, and those of them in eval mode; name it, and not what is in it."""
        known.add(id(module))
        count, held, first = int(id(module) in acting), int(id(module) in evaluating), len(names)
        for part, child in module._modules.items():
            if child is not None and id(child) not in known:
                more, of_them = visit(child, f"{name}.{part}" if name else part)
                count, held = count + more, held + of_them
        if count and count == held:
            names[first:] = [name]
        return count, held

    visit(root, "")
    return names


def _acts(torch: Any, module: Any, is_foreign: Callable[[str], bool]) -> bool:
    """Whether a forward computes something else in eval mode."""
    nn = torch.nn
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        return bool(module.dropout > 0)
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return bool(module.track_running_stats)
    code = getattr(getattr(type(module), "forward", None), "__code__", None)  # TorchScript's raises
    return code is not None and "training" in code.co_names and not is_foreign(code.co_filename)
