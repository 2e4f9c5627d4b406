"""Process groups: made, with what arguments and what environment, and destroyed."""

import os
import time
from dataclasses import replace
from typing import Any

from ..events.process import GroupEvent, Threads
from ..launchers import LAUNCHER_VARIABLES
from ..patch import Args, Kwargs, after_call, guarded, watch
from ..session import Part, Session

MODULES = ("torch.distributed.distributed_c10d", "torch.distributed")
_WITH_MESHES = (*MODULES, "torch.distributed.device_mesh")
_ARGUMENTS = ("backend", "init_method", "timeout", "world_size", "rank", "store")


def install(session: Session) -> None:
    """Watch init_process_group, new_group and destroy_process_group. Each is written down before, too: one that never
    returns, or in which gloo aborts the process, has to be seen."""
    if session.torch.distributed.is_available():
        groups, torch = _Groups(session), session.torch
        session.patch_function(MODULES, "init_process_group", watch(torch, groups.joining, groups.joined))
        session.patch_function(_WITH_MESHES, "new_group", watch(torch, groups.making, groups.made))
        session.patch_function(_WITH_MESHES, "split_group", after_call(groups.split))
        session.patch_function(
            MODULES, "destroy_process_group", watch(torch, groups.destroying, groups.destroyed)
        )


class _Groups(Part):
    calls = 0

    def _begun(self, action: str, **fields: Any) -> GroupEvent:
        self.calls += 1
        event = GroupEvent(action, time.monotonic(), self.session.here(), id=self.calls, **fields)
        self.session.event(event, now=True)
        return event

    def joining(self, args: Args, kwargs: Kwargs) -> GroupEvent:
        environ = {name: os.environ[name] for name in LAUNCHER_VARIABLES if name in os.environ}
        return self._begun("joining", arguments=_given(args, kwargs), environ=environ)

    def joined(self, joining: GroupEvent, _: Any, error: BaseException | None) -> None:
        session, dist, now = self.session, self.torch.distributed, time.monotonic()
        if error is not None:
            session.event(replace(joining, action="refused", time=now), now=True)
            return
        session.rank, session.in_worker = dist.get_rank(), False
        session.event(Threads(self.torch.get_num_threads(), len(os.sched_getaffinity(0))))
        made = {"rank": session.rank, "size": dist.get_world_size(), "backend": dist.get_backend()}
        session.event(replace(joining, action="init", time=now, **made), now=True)

    def making(self, args: Args, kwargs: Kwargs) -> GroupEvent:
        given = args[0] if args else kwargs.get("ranks")
        everybody = range(self.torch.distributed.get_world_size())
        ranks = tuple(everybody if given is None else (int(rank) for rank in given))
        local = bool(kwargs.get("use_local_synchronization"))
        return self._begun("making", ranks=ranks, size=len(ranks), local=local, mesh=_dimension(kwargs))

    def made(self, making: GroupEvent, group: Any, error: BaseException | None = None) -> None:
        if error is None:
            dist = self.torch.distributed
            outside = group is None or group is dist.GroupMember.NON_GROUP_MEMBER
            rank = -1 if outside else dist.get_rank(group)
            self.session.event(replace(making, action="new_group", time=time.monotonic(), rank=rank))

    def split(self, group: Any, _: Args, kwargs: Kwargs) -> None:
        dist = self.torch.distributed
        if group is not None and group is not dist.GroupMember.NON_GROUP_MEMBER:
            ranks = tuple(dist.get_process_group_ranks(group))
            mesh = _dimension(kwargs)
            self.made(self._begun("making", ranks=ranks, size=len(ranks), local=True, mesh=mesh), group)

    def destroying(self, args: Args, kwargs: Kwargs) -> GroupEvent | None:
        group = args[0] if args else kwargs.get("group")
        if group is not None and group is not self.torch.distributed.group.WORLD:
            return None
        for action in self.session.before_destroy:
            guarded(action)()
        return self._begun("destroy")

    def destroyed(self, destroying: GroupEvent, _: Any, error: BaseException | None) -> None:
        if error is None:
            self.session.event(replace(destroying, returned=True), now=True)


def _dimension(given: Kwargs) -> str | None:
    description = str(given.get("group_desc"))
    return description.removeprefix("mesh_") if description.startswith("mesh_") else None


def _given(args: Args, kwargs: Kwargs) -> dict[str, Any]:
    given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    plain = {name: given[name] for name in _ARGUMENTS if given.get(name) is not None}
    if "timeout" in plain:
        plain["timeout"] = getattr(plain["timeout"], "total_seconds", lambda: None)()
    if "store" in plain:
        plain["store"] = type(plain["store"]).__name__
    return plain
