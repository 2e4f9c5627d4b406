"""The shape of most patches: what is ours before and after the user's own call, which stands outside every guard."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .guard import guarded

F = TypeVar("F", bound=Callable[..., Any])


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

        return hidden_from_compiler(torch, call)

    return make


def hidden_from_compiler(torch: Any, function: F) -> F:
    """Let torch.compile begin with what the function calls, as it would without us, and not with the function."""
    dynamo: Any = getattr(torch._C._dynamo, "eval_frame", None)
    code = function.__code__
    if hasattr(dynamo, "set_code_exec_strategy"):
        action = dynamo._FrameAction
        dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(action.SKIP, action.DEFAULT))
    elif hasattr(dynamo, "skip_code"):
        dynamo.skip_code(code)
    return function
