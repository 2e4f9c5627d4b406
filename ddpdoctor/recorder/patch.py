"""The shape of most patches: what is ours before and after the user's own call, which stands outside every guard."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .guard import guarded


def watch(
    torch: Any,
    before: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    after: Callable[[Any, Any, BaseException | None], object],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a patch that looks on.

    Args:
        torch: the user's.
        before: gets the arguments; what it returns goes to ``after``, which is not called for None.
        after: gets also the result, or the exception, which then goes on to the user.
    """
    begin, end, is_compiling = guarded(before), guarded(after), torch.compiler.is_compiling

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            begun = begin(args, kwargs)
            if begun is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                end(begun, None, error)
                raise
            end(begun, result, None)
            return result

        return call

    return make


def hide_from_compiler(torch: Any, function: Any, *, everything: bool = False) -> None:
    """Let torch.compile begin with what the function calls, as it would without us, and not with the function.

    Args:
        torch: the user's.
        function: all functions that share its code are meant.
        everything: leave out what it calls, too.
    """
    dynamo: Any = getattr(torch._C._dynamo, "eval_frame", None)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    if hasattr(dynamo, "set_code_exec_strategy"):
        action = dynamo._FrameAction
        below = action.SKIP if everything else action.DEFAULT
        dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(action.SKIP, below))
    elif hasattr(dynamo, "skip_code"):
        dynamo.skip_code(code)
