"""Process groups: what a script asks of NCCL is done by gloo, under the name that the script expects."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from .devices import Devices
from .nccl import Collectives
from .plain_calls import plain
from .replaced_attributes import Patches

_OF_THE_CPU = ("gloo", "mpi")
"""Backends that serve tensors on the CPU."""
_KNOWN = ("", "undefined", "nccl", "gloo", "ucc")


class Groups:
    """Makes groups on gloo and remembers which backend the script asked for."""

    def __init__(self, devices: Devices, note: Callable[[str, str], None]) -> None:
        self._devices = devices
        self._note = note
        self._asked: dict[str, str] = {}
        """Backend by the group's name, which torch keeps unique."""

    def install(self, patches: Patches) -> None:
        """Replace what makes groups and what tells their backend."""
        if not torch.distributed.is_available():
            return
        home = torch.distributed.distributed_c10d
        patches.wrap(home, "init_process_group", self._init_process_group, torch.distributed)
        patches.wrap(home, "new_group", self._new_group, torch.distributed)
        patches.wrap(home, "get_backend", self._get_backend, torch.distributed)
        for module in (home, torch.distributed):
            patches.add(module, is_nccl_available=lambda: True, ProcessGroupNCCL=_nccl())
        self._answer_for_devices(patches)
        Collectives(self._devices, self.device_types).install(patches)

    def device_types(self, group: Any) -> tuple[str, ...]:
        """The types of devices that the backend serves for which the script asked."""
        asked = self._asked.get(_name(group), "gloo")
        if asked == "undefined":
            return "cpu", "cuda"
        if ":" in asked:
            return tuple(part.partition(":")[0] for part in asked.split(","))
        return ("cpu",) if asked in _OF_THE_CPU else ("cuda",)

    def _answer_for_devices(self, patches: Patches) -> None:
        """By these, torch decides where objects are put before they travel, and what a backend can do."""
        group = torch.distributed.ProcessGroup
        get_backend = group._get_backend

        def device_types(group: Any) -> list[torch.device]:
            return [torch.device(kind) for kind in self.device_types(group)]

        def backend(group: Any, device: torch.device) -> Any:
            return get_backend(group, torch.device("cpu"))

        patches.add(group, _device_types=property(device_types), _get_backend=backend)

    def _init_process_group(self, original: Any, *args: Any, **kwargs: Any) -> None:
        given = _by_name(original, args, kwargs)
        device = given.pop("device_id", None)
        if device is not None and (index := self._devices.index_of(device)) is not None:
            self._devices.use(index)
        asked = given.get("backend")
        if asked is None:
            asked = "undefined" if device is None else "nccl"
        plain(original, (), self._on_gloo(given))
        self._remember(torch.distributed.group.WORLD, asked)

    def _new_group(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        given = _by_name(original, args, kwargs)
        given.pop("device_id", None)
        asked = given.get("backend") or torch.distributed.get_backend()
        group = plain(original, (), self._on_gloo(given))
        self._remember(group, asked)
        return group

    def _get_backend(self, original: Any, group: Any = None) -> str:
        gloo: str = plain(original, (group,))
        return self._asked.get(_name(group or torch.distributed.group.WORLD), gloo)

    def _on_gloo(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments with every backend for GPUs replaced; what torch does not know, it refuses itself."""
        asked = str(given.get("backend") or "").lower()
        if asked not in _OF_THE_CPU and all(map(_is_known, asked.split(","))):
            given["backend"] = "gloo"
        if given.pop("pg_options", None) is not None:
            self._note("options", "options of the NCCL process group have no counterpart in gloo")
        return given

    def _remember(self, group: Any, asked: str) -> None:
        name = _name(group)
        if name:
            _never_end(group)
            self._asked[name] = torch.distributed.Backend(asked) if asked != "undefined" else asked


def _by_name(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    return {**dict(zip(inspect.signature(function).parameters, args, strict=False)), **kwargs}


def _is_known(backend: str) -> bool:
    """Whether torch has a backend of this name, after a device or alone, or a package that it imported brought one."""
    name = backend.rpartition(":")[2]
    return name in _KNOWN or name.upper() in getattr(torch.distributed.Backend, "_plugins", ())


def _never_end(group: Any) -> None:
    """Let the group outlive its script.

    gloo's destructor joins its worker thread with the GIL held, and that thread may wait for the GIL: scripts that
    end well with NCCL would hang or abort here.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))


def _name(group: Any) -> str:
    """A rank that is not in a new group holds a marker without a name."""
    return str(getattr(group, "group_name", ""))


def _nccl() -> type:
    class ProcessGroupNCCL:
        """Stands where scripts look for NCCL's options."""

        class Options(ModuleType):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__("options")
                self.__dict__.update(kwargs)

    return ProcessGroupNCCL
