"""What a process runs."""

from __future__ import annotations

from ddpdoctor.host.activity import folder_of

SERVANTS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.semaphore_tracker",
    "multiprocessing.forkserver",
)
"""Children of multiprocessing's own, which wait all the time and belong to nobody's work."""


def program_of(pid: int) -> str | None:
    """The file name of what a process runs, whatever it calls itself; None where that may not be seen."""
    folder = folder_of(pid)
    try:
        return (folder / "exe").readlink().name if folder else None
    except OSError:
        return None


def runs_python(pid: int) -> bool:
    """Whether a process is seen to run Python."""
    return "python" in (program_of(pid) or "")


def loads_torch(pid: int) -> bool:
    """Whether a process has torch's library in memory."""
    folder = folder_of(pid)
    try:
        return folder is not None and "/libtorch" in (folder / "maps").read_text(errors="replace")
    except OSError:
        return False
