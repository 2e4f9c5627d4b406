"""What frameworks are told, so that a check sees all of their run.

Lightning's Trainer counts batches: where passes are cut short, it is given its own limits, and reaches their ends. Else
it would neither validate nor save, since it does both after the number of batches that the DataLoader announces.

ray.init on a cluster that is running: its hosts start the workers, and not in the environment of this process. So they
get by Ray's runtime environment what brings the recorder into them. Where Ray starts its processes itself, they inherit
it.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..passes import LIMITED
from ..patch import after_call, around, guarded
from ..session import Session

_MODULES = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
_LIMITS = ("limit_train_batches", "limit_val_batches", "limit_test_batches")
_BATCHES = 8
"""Of a pass, where no number is asked for: a Trainer wants it before the first batch shows how long one takes."""
_UPDATES = 2
"""Updates of the optimizer in a pass that trains, at least."""


_INJECT = str(Path(__file__).parents[1] / "inject")
_OURS = "DDPDOCTOR_"
_LOCAL = "local"
"""The address that asks Ray to start a cluster whatever the environment says."""


def install(session: Session) -> None:
    """Watch ray.init and, in a run that is shortened, the Trainer's construction, once their packages are there."""
    session.patch_later("ray", "init", watch_ray_init)
    if not session.options.full:
        limit = after_call(lambda _, args, kwargs: _limit(session, args[0]))
        for module in _MODULES:
            session.patch_later(module, "Trainer.__init__", limit)


def _limit(session: Session, trainer: Any) -> None:
    batches = max(session.options.batches or _BATCHES, _UPDATES * int(trainer.accumulate_grad_batches))
    between = trainer.val_check_interval
    if isinstance(between, int) and between > batches:
        return  # it refuses to validate less often than once in a pass
    for name in _LIMITS:
        given = getattr(trainer, name)
        if given > batches if isinstance(given, int) else given == 1.0:
            setattr(trainer, name, batches)
    session.shared[LIMITED] = batches


def _init(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    changed = _with_recorder(args[0] if args else kwargs.get("address"), kwargs.get("runtime_env"))
    return original(*args, **kwargs if changed is None else {**kwargs, "runtime_env": changed})


watch_ray_init = around(_init)


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
