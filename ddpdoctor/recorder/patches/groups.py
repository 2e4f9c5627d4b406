"""Process groups: made, with what arguments and what environment, and destroyed."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ..guard import guarded
from ..session import LAUNCHER_VARIABLES, Session

MODULES = ("torch.distributed.distributed_c10d", "torch.distributed")
_ARGUMENTS = ("backend", "init_method", "timeout", "world_size", "rank")


def install(session: Session) -> None:
    """Watch init_process_group, new_group and destroy_process_group."""
    if not session.torch.distributed.is_available():
        return
    session.patch_function(MODULES, "init_process_group", functools.partial(_watch_init, session))
    session.patch_function(MODULES, "new_group", functools.partial(_watch_new_group, session))
    session.patch_function(MODULES, "destroy_process_group", functools.partial(_watch_destroy, session))


def _watch_init(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        at, given = session.here(), _given(args, kwargs)
        # Written down before, too: a rank that never gets past it has to be seen.
        _tell_joining(session, at, given)
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            _tell_refused(session, at, error)
            raise
        _tell_init(session, at, given)
        return result

    return init_process_group


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    given = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
    plain = {name: given[name] for name in _ARGUMENTS if given.get(name) is not None}
    if "timeout" in plain:
        plain["timeout"] = getattr(plain["timeout"], "total_seconds", lambda: None)()
    return plain


@guarded
def _tell_joining(session: Session, at: int | None, given: dict[str, Any]) -> None:
    environ = {name: os.environ[name] for name in LAUNCHER_VARIABLES if name in os.environ}
    session.event("group.joining", at=at, now=True, arguments=given, environ=environ)


@guarded
def _tell_refused(session: Session, at: int | None, error: BaseException) -> None:
    session.event("group.refused", at=at, now=True, error=f"{type(error).__name__}: {error}"[:2000])


@guarded
def _tell_init(session: Session, at: int | None, given: dict[str, Any]) -> None:
    dist = session.torch.distributed
    session.rank, session.in_worker = dist.get_rank(), False
    session.event(
        "group.init",
        at=at,
        now=True,
        rank=session.rank,
        size=dist.get_world_size(),
        backend=dist.get_backend(),
        arguments=given,
        threads=session.torch.get_num_threads(),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    )


def _watch_new_group(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def new_group(*args: Any, **kwargs: Any) -> Any:
        at = session.here()
        # Before, too: it waits for every rank of the job.
        _tell_making(session, at, args, kwargs)
        result = original(*args, **kwargs)
        _tell_new_group(session, at, args, kwargs, result)
        return result

    return new_group


@guarded
def _tell_making(session: Session, at: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    local = bool(kwargs.get("use_local_synchronization"))
    session.event("group.making", at=at, now=True, ranks=_wanted(session, args, kwargs), local=local)


def _wanted(session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int]:
    """The members of a new group, as global ranks."""
    ranks = args[0] if args else kwargs.get("ranks")
    everybody = range(session.torch.distributed.get_world_size())
    return list(everybody) if ranks is None else [int(rank) for rank in ranks]


@guarded
def _tell_new_group(
    session: Session, at: int | None, args: tuple[Any, ...], kwargs: dict[str, Any], group: Any
) -> None:
    dist = session.torch.distributed
    members = _wanted(session, args, kwargs)
    own = -1 if group is None or group is dist.GroupMember.NON_GROUP_MEMBER else dist.get_rank(group)
    session.event("group.new", at=at, ranks=members, rank=own, size=len(members))


def _watch_destroy(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
        group = args[0] if args else kwargs.get("group")
        whole = group is None or group is session.torch.distributed.group.WORLD
        for action in session.before_destroy if whole else ():
            guarded(action)()
        # Before and at once: gloo may abort the process in there, which is no finding.
        session.event("group.destroy", at=session.here(), now=True, whole=whole)
        return original(*args, **kwargs)

    return destroy_process_group
