"""The variables of a function that runs, read so that its script does not notice."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

_FUNCTION = 1
"""The flag of code whose variables are not a dictionary by themselves."""
_COPIED = sys.version_info < (3, 13)
"""Whether reading a function's variables by name leaves a copy in its frame."""
_READ_THEMSELVES = {"locals", "vars", "dir", "f_locals"}
"""What code may call that would see that copy."""


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables by name; empty where the function may look at the copy that Python keeps of them."""
    code = frame.f_code
    if _READ_THEMSELVES & {*code.co_names}:
        return {}
    variables = frame.f_locals
    copy = dict(variables)
    # A tracer's copy is written back into the function.
    if _COPIED and code.co_flags & _FUNCTION and sys.gettrace() is None:
        variables.clear()  # else what the function has let go of would live on
    return copy
