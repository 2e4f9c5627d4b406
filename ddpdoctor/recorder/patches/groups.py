"""Process groups: made, with what arguments and what environment, and destroyed."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..events.process import GroupEvent, Threads
from ..guard import guarded
from ..launchers import LAUNCHER_VARIABLES
from ..session import Session
from ..traceback_frames import leave_out

MODULES = ("torch.distributed.distributed_c10d", "torch.distributed")
_MESHES = "torch.distributed.device_mesh"
_ARGUMENTS = ("backend", "init_method", "timeout", "world_size", "rank", "store")


def install(session: Session) -> None:
    """Watch init_process_group, new_group and destroy_process_group."""
    if not session.torch.distributed.is_available():
        return
    groups = _Groups(session)
    session.patch_function(MODULES, "init_process_group", groups.watch_init)
    session.patch_function((*MODULES, _MESHES), "new_group", groups.watch_new_group)
    session.patch_function((*MODULES, _MESHES), "split_group", groups.watch_split_group)
    session.patch_function(MODULES, "destroy_process_group", groups.watch_destroy)


class _Groups:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls = 0

    def _tell(self, event: GroupEvent) -> None:
        self.session.event(event, now=True)

    def watch_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            # Written down before, too: a rank that never gets past it has to be seen.
            joining = self.joining(args, kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                leave_out(error)
                self.refused(joining, error)
                raise
            self.joined(joining)
            return result

        return init_process_group

    @guarded
    def joining(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GroupEvent:
        environ = {name: os.environ[name] for name in LAUNCHER_VARIABLES if name in os.environ}
        event = self._begun("joining", arguments=_given(args, kwargs), environ=environ)
        self._tell(event)
        return event

    def _begun(self, action: str, **fields: Any) -> GroupEvent:
        self.calls += 1
        return GroupEvent(action, time.monotonic(), self.session.here(), id=self.calls, **fields)

    @guarded
    def refused(self, joining: GroupEvent | None, error: BaseException) -> None:
        if joining is not None:
            text = f"{type(error).__name__}: {error}"[:2000]
            self._tell(replace(joining, action="refused", time=time.monotonic(), error=text))

    @guarded
    def joined(self, joining: GroupEvent | None) -> None:
        session, dist = self.session, self.session.torch.distributed
        session.rank, session.in_worker = dist.get_rank(), False
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        session.event(Threads(session.torch.get_num_threads(), cpus))
        made = {"rank": session.rank, "size": dist.get_world_size(), "backend": dist.get_backend()}
        if joining is not None:
            self._tell(replace(joining, action="init", time=time.monotonic(), **made))

    def watch_new_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def new_group(*args: Any, **kwargs: Any) -> Any:
            try:
                # Before, too: it waits for every rank of the job.
                making = self.making(args, kwargs)
                result = original(*args, **kwargs)
                self.made(making, result)
                return result
            except BaseException as passing:
                leave_out(passing)
                raise

        return new_group

    @guarded
    def making(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> GroupEvent:
        given = args[0] if args else kwargs.get("ranks")
        everybody = range(self.session.torch.distributed.get_world_size())
        ranks = tuple(everybody if given is None else (int(rank) for rank in given))
        local = bool(kwargs.get("use_local_synchronization"))
        event = self._begun("making", ranks=ranks, size=len(ranks), local=local, mesh=_dimension(kwargs))
        self._tell(event)
        return event

    @guarded
    def made(self, making: GroupEvent | None, group: Any) -> None:
        dist = self.session.torch.distributed
        rank = -1 if group is None or group is dist.GroupMember.NON_GROUP_MEMBER else dist.get_rank(group)
        if making is not None:
            self.session.event(replace(making, action="new_group", time=time.monotonic(), rank=rank))

    def watch_split_group(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def split_group(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
                self.split(result, kwargs)
                return result
            except BaseException as passing:
                leave_out(passing)
                raise

        return split_group

    @guarded
    def split(self, group: Any, given: dict[str, Any]) -> None:
        dist = self.session.torch.distributed
        if group is not None and group is not dist.GroupMember.NON_GROUP_MEMBER:
            ranks = tuple(dist.get_process_group_ranks(group))
            mesh = _dimension(given)
            self.made(self._begun("making", ranks=ranks, size=len(ranks), local=True, mesh=mesh), group)

    def watch_destroy(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            try:
                group = args[0] if args else kwargs.get("group")
                if group is not None and group is not self.session.torch.distributed.group.WORLD:
                    return original(*args, **kwargs)
                for action in self.session.before_destroy:
                    guarded(action)()
                # Before and at once: gloo may abort the process in there, which is no finding.
                destroying = self.destroying()
                result = original(*args, **kwargs)
                self.destroyed(destroying)
                return result
            except BaseException as passing:
                leave_out(passing)
                raise

        return destroy_process_group

    @guarded
    def destroying(self) -> GroupEvent:
        event = self._begun("destroy")
        self._tell(event)
        return event

    @guarded
    def destroyed(self, destroying: GroupEvent | None) -> None:
        if destroying is not None:
            self._tell(replace(destroying, returned=True))


def _dimension(given: dict[str, Any]) -> str | None:
    description = str(given.get("group_desc"))
    return description.removeprefix("mesh_") if description.startswith("mesh_") else None


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    plain = {name: given[name] for name in _ARGUMENTS if given.get(name) is not None}
    if "timeout" in plain:
        plain["timeout"] = getattr(plain["timeout"], "total_seconds", lambda: None)()
    if "store" in plain:
        plain["store"] = type(plain["store"]).__name__
    return plain
