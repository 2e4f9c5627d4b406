"""The variables of a function that runs, read so that its script does not notice."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

FUNCTION = 1
"""The flag of code whose variables are not a dictionary by themselves."""
_COPIED = sys.version_info < (3, 13)
"""Whether reading a function's variables by name leaves a copy in its frame."""
_READ_THEMSELVES = {"locals", "vars", "dir", "f_locals"}
"""What code may call that would see that copy."""
TRACERS: set[CodeType] = set()
"""The code of the recorder's own trace functions, where there are any."""


def gettrace() -> Any:
    """The trace function of this thread, ours apart: what ``sys.gettrace`` says to the script."""
    return sys.gettrace()


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables by name; empty where the function may look at the copy that Python keeps of them."""
    code = frame.f_code
    if _READ_THEMSELVES & {*code.co_names}:
        return {}
    variables = frame.f_locals
    copy = dict(variables)
    # A tracer's copy is written back into the function.
    if _COPIED and code.co_flags & FUNCTION and gettrace() is None and not is_traced_now(frame):
        variables.clear()  # else what the function has let go of would live on
    return copy


def is_traced_now(frame: FrameType) -> bool:
    """Whether a trace function of ours has been called for this frame and runs, as around a signal's handler."""
    inner: FrameType | None = sys._getframe(1) if TRACERS else None
    while inner is not None and inner is not frame:
        if inner.f_code in TRACERS and inner.f_back is frame:
            return True
        inner = inner.f_back
    return False
