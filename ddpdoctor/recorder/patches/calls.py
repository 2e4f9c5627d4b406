"""Calls of single functions that one event each tells: seeding, what averages and converts BatchNorm, gathered objects
and metrics, variables of the launcher that the script sets."""

import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..digest import digests, named
from ..events.schema import Event
from ..events.training import Conversion, GatheredForMetrics
from ..launchers import LAUNCHER_VARIABLES
from ..patch import Args, Kwargs, after_call, caller, watch
from ..session import Part, Session
from ..training import Training
from ..where import Where

_MOST = 200
"""Calls that are written down of seeding, and of setting variables; a script may seed before every sample."""
_GATHERING = "all_gather_object"
_LEAST = 4096
"""Bytes of an object; less is a count, a name or a state."""


@dataclass(slots=True)
class Seeded(Event):
    """A global random stream was seeded, by the script or by a function of a library that it calls."""

    time: float
    stream: str
    """``torch``, which is that of the GPUs too, ``numpy`` or ``python``."""
    value: int | None
    """None where it is no number."""
    at: Where | None = None


@dataclass(slots=True)
class VariableSet(Event):
    """The script set a variable of the launcher; what it set before torch was imported is not seen."""

    name: str
    value: str
    at: Where | None = None


@dataclass(slots=True)
class BatchNormUpdate(Event):
    """A call of torch.optim.swa_utils.update_bn, which leaves new statistics in the layers of an averaged model."""

    begin: float
    end: float
    at: Where | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    """Of the model's buffers afterwards."""


@dataclass(slots=True)
class GatheredObject(Event):
    """What this rank gave to a line that gathers objects on all ranks; written down where it is the largest so far."""

    time: float
    bytes: int
    at: Where | None = None


def install(session: Session) -> None:
    """Watch the functions; each holder has its own ``manual_seed``, of one function."""
    calls, torch = Calls(session), session.torch
    for holder in (torch.random, torch):
        session.patch(holder, "manual_seed", after_call(partial(calls.seeded, "torch")))
    session.patch(random, "seed", after_call(partial(calls.seeded, "python")))
    session.patch(type(os.environ), "__setitem__", after_call(calls.variable_set))
    converting = watch(torch, calls.converting, calls.converted)
    session.patch(torch.nn.SyncBatchNorm, "convert_sync_batchnorm", converting)
    for module, name, make in (
        ("numpy.random", "seed", after_call(partial(calls.seeded, "numpy"))),
        ("torch.optim.swa_utils", "update_bn", watch(torch, calls.updating, calls.updated)),
        ("torch.distributed.distributed_c10d", "_object_to_tensor", after_call(calls.turned_into_bytes)),
        ("accelerate.accelerator", "Accelerator.gather_for_metrics", watch(torch, calls.gathers_for_metrics)),
    ):
        session.patch_later(module, name, make)


class Calls(Part):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._left = {"seeds": _MOST, "variables": _MOST}
        self._conversions = 0
        """Calls under way: a conversion calls itself for every child; only the outermost is the script's."""
        self._largest: dict[object, int] = {}
        """Bytes of the objects that lines have gathered."""
        self._metrics: set[object] = set()
        """Lines that gathered for a metric."""

    def _is_told(self, what: str) -> bool:
        self._left[what] -= 1
        return self._left[what] >= 0

    def seeded(self, stream: str, _: Any, args: Args, kwargs: Kwargs) -> None:
        if not self.session.in_worker and self._is_told("seeds"):
            value: Any = args[0] if args else next(iter(kwargs.values()), None)
            number = int(value) if hasattr(value, "__index__") else None
            self.session.event(Seeded(time.monotonic(), stream, number, self.session.here()))

    def variable_set(self, _: Any, args: Args, __: Kwargs) -> None:
        name, value = args[1:]
        if name in LAUNCHER_VARIABLES and self._is_told("variables"):
            self.session.event(VariableSet(name, value, self.session.here()))

    def converting(self, args: Args, kwargs: Kwargs) -> Conversion | bool:
        """BatchNorm layers are about to be converted: how many, and whether they are wrapped already."""
        self._conversions += 1
        module, nn = args[0] if args else kwargs.get("module"), self.torch.nn
        if self._conversions > 1 or module is None:
            return False
        norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
        layers = sum(not isinstance(norm, nn.SyncBatchNorm) for norm in norms)
        wrappers = Training.of(self.session).living()
        wrapped = any(module is part for _, ddp in wrappers for part in ddp.modules())
        return Conversion(time.monotonic(), self.session.here(), layers, wrapped)

    def converted(self, conversion: Any, _: Any, error: BaseException | None) -> None:
        self._conversions -= 1
        if conversion and error is None:
            self.session.event(conversion)

    def updating(self, args: Args, kwargs: Kwargs) -> Any:
        """Statistics of BatchNorm layers are about to be computed anew."""
        model = args[1] if len(args) > 1 else kwargs.get("model")
        return None if model is None else (model, time.monotonic())

    def updated(self, begun: Any, _: Any, error: BaseException | None) -> None:
        if error is None:
            model, began = begun
            buffers = {name: held for name, held in model.named_buffers() if held.is_floating_point()}
            values = named(buffers, digests(self.torch, list(buffers.values())))
            self.session.event(BatchNormUpdate(began, time.monotonic(), self.session.here(), values))

    def turned_into_bytes(self, result: Any, _: Args, __: Kwargs) -> None:
        """An object was, for a collective of objects."""
        if caller().f_code.co_name == _GATHERING and (size := int(result[0].numel())) >= _LEAST:
            at = self.session.here()
            if size > self._largest.get(at, 0):
                self._largest[at] = size
                self.session.event(GatheredObject(time.monotonic(), size, at))

    def gathers_for_metrics(self, _: Args, __: Kwargs) -> None:
        """A framework gathers for a metric, without the samples that it repeats to even out the batches."""
        at = self.session.here()
        if at not in self._metrics:
            self._metrics.add(at)
            self.session.event(GatheredForMetrics(time.monotonic(), at))
