"""Variables of the launcher that the script sets in its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..events.schema import Event
from ..launchers import LAUNCHER_VARIABLES
from ..patch import after_call
from ..session import Session
from ..where import Where

_MOST = 200
"""Calls that are written down."""


@dataclass(slots=True)
class VariableSet(Event):
    """The script set a variable of the launcher."""

    name: str
    value: str
    at: Where | None = None


def install(session: Session) -> None:
    """Watch assignments to os.environ; those before torch was imported are not seen."""
    left = iter(range(_MOST))

    def look(_: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> None:
        name, value = args[1:]
        if name in LAUNCHER_VARIABLES and next(left, None) is not None:
            session.event(VariableSet(name, value, session.here()))

    session.patch(type(os.environ), "__setitem__", after_call(look))
