"""What a process runs."""

from __future__ import annotations

from collections.abc import Sequence

from ddpdoctor.host.proc import folder_of

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


def without_padding(words: Sequence[str]) -> tuple[str, ...]:
    """A command line; of a process that has renamed itself its name, without the empty words behind it."""
    return tuple(words if any(words[1:]) else words[:1])


def runs_python(pid: int) -> bool:
    """Whether a process is seen to run Python."""
    return "python" in (program_of(pid) or "")


def loads_torch(pid: int) -> bool:
    """Whether a process has torch's library in memory."""
    return "/libtorch" in _maps(pid)


def loads_driver(pid: int) -> bool:
    """Whether a process has a driver of GPUs in memory, and so may wait for one."""
    maps = _maps(pid)
    return any(name in maps for name in ("/libcuda.so", "/libamdhip64.so"))


def _maps(pid: int) -> str:
    """What is mapped into its memory; empty where that may not be seen."""
    folder = folder_of(pid)
    try:
        return (folder / "maps").read_text(errors="replace") if folder else ""
    except OSError:
        return ""
