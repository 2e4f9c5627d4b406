"""The options of ``check`` as they were given."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.job.command import Kind
from ddpdoctor.model import Level


@dataclass(frozen=True)
class Options:
    """None, or nothing, where one was not given."""

    words: tuple[str, ...] = ()
    """The script and its arguments, the module and its arguments, or the launch line."""
    kind: Kind = Kind.SCRIPT
    nproc: int | None = None
    nnodes: int = 1
    node_rank: int = 0
    master_addr: str | None = None
    master_port: int | None = None
    standalone: bool = False
    rdzv_backend: str | None = None
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None
    backend: str | None = None
    batches: int | None = None
    full: bool = False
    time_limit: float | None = None
    hang_after: float | None = None
    rehearse: bool = False
    rehearse_hosts: int | None = None
    exact: bool = False
    trace: str | None = None
    keep: bool = False
    checkpoint_dir: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: Level | None = None
    timeout: float | None = None
    format: str = "terminal"
    output: str | None = None
    timeline: str | None = None
    verbose: bool = False
    quiet: bool = False

    @property
    def imaginary_hosts(self) -> int:
        """Hosts of a rehearsal; 0 where devices are real."""
        return int(self.rehearse) if self.rehearse_hosts is None else self.rehearse_hosts
