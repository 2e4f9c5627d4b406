"""Process groups: what a script asks of NCCL is done by gloo, under the name that the script expects."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from .devices import Devices
from .replaced_attributes import Patches

_INIT = (
    "backend",
    "init_method",
    "timeout",
    "world_size",
    "rank",
    "store",
    "group_name",
    "pg_options",
    "device_id",
)
_NEW = ("ranks", "timeout", "backend", "pg_options")


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
        replaced = {
            "init_process_group": self._init(home.init_process_group),
            "new_group": self._new(home.new_group),
            "get_backend": self._backend(home.get_backend),
            "barrier": self._barrier(home.barrier),
            "is_nccl_available": lambda: True,
        }
        for module in (home, torch.distributed):
            patches.add(module, **replaced)
        patches.set(torch.distributed, "ProcessGroupNCCL", _nccl())

    def _init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> None:
            given = {**dict(zip(_INIT, args, strict=False)), **kwargs}
            device = given.pop("device_id", None)
            if device is not None and (index := self._devices.index_of(device)) is not None:
                self._devices.use(index)
            asked = given.get("backend")
            if asked is None:
                asked = "undefined" if device is None else "nccl"
            original(**self._on_gloo(given))
            self._remember(torch.distributed.group.WORLD, asked)

        return init_process_group

    def _new(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def new_group(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(_NEW, args, strict=False)), **kwargs}
            given.pop("device_id", None)
            asked = given.get("backend") or torch.distributed.get_backend()
            group = original(**self._on_gloo(given))
            self._remember(group, asked)
            return group

        return new_group

    def _barrier(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
            # torch would make its tensor on the GPU that is named.
            for device in device_ids or ():
                self._devices.use(device)
            return original(group, async_op)

        return barrier

    def _backend(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get_backend(group: Any = None) -> str:
            plain: str = original(group)
            return self._asked.get(_name(group or torch.distributed.group.WORLD), plain)

        return get_backend

    def _on_gloo(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments with every backend for GPUs replaced."""
        asked = str(given.get("backend") or "").lower()
        if asked not in {"gloo", "mpi"}:
            given["backend"] = "gloo"
        if given.pop("pg_options", None) is not None:
            self._note("options", "options of the NCCL process group have no counterpart in gloo")
        return given

    def _remember(self, group: Any, asked: str) -> None:
        name = _name(group)
        if name:
            _never_end(group)
            self._asked[name] = torch.distributed.Backend(asked) if asked != "undefined" else asked


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
