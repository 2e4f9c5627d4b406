"""ray.init on a cluster that is running: its hosts start the workers, and not in the environment of this process.

So they get by Ray's runtime environment what brings the recorder into them. Where Ray starts its processes itself,
they inherit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..guard import guarded
from ..patch import around
from ..session import Session

_INJECT = str(Path(__file__).parents[1] / "inject")
_OURS = "DDPDOCTOR_"
_LOCAL = "local"
"""The address that asks Ray to start a cluster whatever the environment says."""


def install(session: Session) -> None:
    """Watch ray.init, once Ray is there."""
    session.patch_later("ray", "init", make)


def _init(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    changed = _with_recorder(args[0] if args else kwargs.get("address"), kwargs.get("runtime_env"))
    return original(*args, **kwargs if changed is None else {**kwargs, "runtime_env": changed})


make = around(_init)


@guarded
def _with_recorder(address: object, runtime_env: object) -> dict[str, Any] | None:
    """The runtime environment with the recorder in it; None where workers need none."""
    address = address or os.environ.get("RAY_ADDRESS")
    if not address or address == _LOCAL or not (runtime_env is None or isinstance(runtime_env, Mapping)):
        return None
    given = dict(runtime_env or {})
    variables = dict(given.get("env_vars") or {})
    place = variables.get("PYTHONPATH", "${PYTHONPATH}")
    ours = {name: value for name, value in os.environ.items() if name.startswith(_OURS)}
    return {**given, "env_vars": {**variables, **ours, "PYTHONPATH": f"{_INJECT}{os.pathsep}{place}"}}
