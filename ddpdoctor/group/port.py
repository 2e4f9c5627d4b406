"""Who holds the rendezvous port before the live group, during it and after it, as this host sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ddpdoctor.group.group_record import PortUse
from ddpdoctor.host.system import System
from ddpdoctor.job.guard import MARK
from ddpdoctor.launch import Launch

_LOOKS = 2


class PortWatch:
    """Looks at the port of one group."""

    def __init__(self, system: System, launch: Launch, run_id: str) -> None:
        self._system, self._launch, self._run_id = system, launch, run_id
        self._found_free = 0
        self.use = PortUse(launch.master_port)

    def choose(self) -> int:
        """The port for the ranks; on one node any that is free, so that neither the job nor a stranger has it."""
        launch = self._launch
        port = launch.master_port if launch.nnodes > 1 else self._system.free_port()
        self.use = PortUse(port, before=self._system.try_bind("", port) if launch.node_rank == 0 else None)
        return port

    def look(self, goes_on: Callable[[], bool]) -> None:
        """Look whether the group holds the port, unless that is known.

        Args:
            goes_on: whether rank 0 measures and nobody broke. A group that comes apart lets go of its port a moment
                before its end is seen, so that it is not held counts only twice, of one that goes on afterwards.
        """
        if self.use.during is not None or self._launch.node_rank != 0:
            return
        during = self._system.try_bind("", self.use.port)
        if during == 0:
            self._found_free = self._found_free + 1 if goes_on() else 0
        if during or self._found_free >= _LOOKS:
            self.use = replace(self.use, during=during)

    def look_after(self) -> PortUse:
        """All of it, when the group has ended."""
        return replace(self.use, after=self._still_held()) if self.use.during is not None else self.use

    def _still_held(self) -> int:
        """The errno of a port that a process of this run still holds; another job may take it at any time."""
        error = self._system.try_bind("", self.use.port)
        listeners = self._system.listeners(self.use.port) if error else []
        owners = [listener.process for listener in listeners if listener.process]
        return error if any(owner.environ.get(MARK) == self._run_id for owner in owners) else 0
