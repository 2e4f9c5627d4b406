"""The shape of most patches: what is ours before and after the user's own call, which stands outside every guard."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from .guard import guarded, name_of, report
from .traceback_frames import leave_out

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Make = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What makes a replacement of a function."""
IN_FULL = object()
"""What a brief way returns that leaves a call to the full one."""


def watch(
    torch: Any,
    before: Callable[[Args, Kwargs], Any],
    after: Callable[[Any, Any, BaseException | None], object] = lambda *_: None,
    brief: Callable[[Callable[..., Any], Args, Kwargs], Any] = lambda *_: IN_FULL,
) -> Make:
    """Make a patch that looks on.

    Args:
        torch: the user's.
        before: gets the arguments; what it returns goes to ``after``, which is not called for None.
        after: gets also the result, or the exception, which then goes on to the user.
        brief: makes the call itself, between a few counts, where nothing is to be looked at; or returns ``IN_FULL``.
    """
    hide_from_compiler(torch, before, everything=True)
    hide_from_compiler(torch, after, everything=True)
    hide_from_compiler(torch, brief)
    return functools.partial(_looking_on, torch, before, after, brief)


def _looking_on(
    torch: Any,
    before: Callable[..., Any],
    after: Callable[..., object],
    brief: Callable[..., Any],
    original: Callable[..., Any],
) -> Callable[..., Any]:
    end, is_compiling = guarded(after), torch.compiler.is_compiling
    is_traced = torch.compiler.is_dynamo_compiling  # at once; the other takes as long as all of a brief way

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_traced():
            return original(*args, **kwargs)
        begun = None
        try:
            result = brief(original, args, kwargs)
            if result is not IN_FULL:
                return result
            if is_compiling():
                return original(*args, **kwargs)
            # As guarded() does it, without a call more: this is the way of every training step.
            try:
                begun = before(args, kwargs)
            except Exception:  # noqa: BLE001 - a fault of ours costs a note, never the run
                report(name_of(before))
            if begun is None:
                return original(*args, **kwargs)
            result = original(*args, **kwargs)
        except BaseException as error:
            leave_out(error)
            if begun is not None:
                end(begun, None, error)
            raise
        try:
            after(begun, result, None)
        except Exception:  # noqa: BLE001
            report(name_of(after))
        return result

    return call


def after_call(look: Callable[[Any, Args, Kwargs], object]) -> Make:
    """Make a patch that looks, guarded, at the result and the arguments of calls that returned."""
    guarded_look = guarded(look)

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                leave_out(error)
                raise
            guarded_look(result, args, kwargs)
            return result

        return call

    return make


def around(call: Callable[..., Any]) -> Make:
    """Make a patch that does something else: ``call`` gets the original, and the arguments of each call of it."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(original, *args, **kwargs)
            except BaseException as error:
                leave_out(error)
                raise

        return replacement

    return make


def hook(torch: Any, function: Callable[..., object]) -> Callable[..., None]:
    """What torch may call in every training step: guarded, and nothing while torch.compile traces."""
    is_traced = torch.compiler.is_dynamo_compiling

    def call(*args: Any) -> None:
        if is_traced():
            return
        try:
            function(*args)
        except Exception:  # noqa: BLE001 - as above
            report(name_of(function))

    hide_from_compiler(torch, call)
    return call


def hide_from_compiler(torch: Any, function: Any, *, everything: bool = False) -> None:
    """Let torch.compile begin with what the function calls, as it would without us, and not with the function.

    Args:
        torch: the user's.
        function: all functions that share its code are meant.
        everything: leave out what it calls, too.
    """
    dynamo: Any = getattr(torch._C._dynamo, "eval_frame", None)
    code = getattr(getattr(function, "func", function), "__code__", None)  # a partial has none of its own
    if code is None:
        return
    if hasattr(dynamo, "set_code_exec_strategy"):
        action = dynamo._FrameAction
        below = action.SKIP if everything else action.DEFAULT
        dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(action.SKIP, below))
    elif hasattr(dynamo, "skip_code"):
        dynamo.skip_code(code)


def has_compiled() -> bool:
    """Whether torch.compile has compiled anything that it may still use."""
    compiled = getattr(sys.modules.get("torch._dynamo.convert_frame"), "input_codes", None)
    return bool(getattr(compiled, "seen", None))


def hide_package(torch: Any, package: str) -> None:
    """The same for all our code, where torch cannot leave out what a function calls (before 2.6)."""
    dynamo: Any = getattr(torch._C._dynamo, "eval_frame", None)
    if hasattr(dynamo, "set_code_exec_strategy") or not hasattr(dynamo, "skip_code"):
        return
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(package)]
    held = [value for module in modules for value in vars(module).values()]
    ours = [value for value in held if str(getattr(value, "__module__", "")).startswith(package)]
    ours += [value for kind in ours if isinstance(kind, type) for value in vars(kind).values()]
    ours += [value.__wrapped__ for value in ours if hasattr(value, "__wrapped__")]
    waiting = [code for value in ours if (code := getattr(value, "__code__", None)) is not None]
    while waiting:
        code = waiting.pop()
        dynamo.skip_code(code)
        waiting.extend(part for part in code.co_consts if isinstance(part, CodeType))
