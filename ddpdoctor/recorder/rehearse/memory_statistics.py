"""What torch.cuda says of memory: the numbers of this process, because no GPU has any."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

TOTAL = 80 * 2**30
"""The memory of a simulated GPU."""
_FAMILIES = """
    allocated_bytes reserved_bytes active_bytes inactive_split_bytes requested_bytes allocation segment active
    inactive_split
"""


def used() -> int:
    """The memory that this process holds, in bytes."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return peak()
    return pages * resource.getpagesize()


def peak() -> int:
    """The most memory that this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def stats(device: int = 0) -> dict[str, Any]:
    """As torch.cuda.memory_stats before it is flattened."""
    numbers = {"current": used(), "peak": peak(), "allocated": peak(), "freed": max(0, peak() - used())}
    nothing = dict.fromkeys(numbers, 0)
    pools = {"all": numbers, "small_pool": nothing, "large_pool": numbers}
    counts = dict.fromkeys(("num_alloc_retries", "num_ooms", "num_sync_all_streams", "max_split_size"), 0)
    counts.update(dict.fromkeys(("num_device_alloc", "num_device_free"), 0))
    return {
        **dict.fromkeys(_FAMILIES.split(), pools),
        "oversize_allocations": nothing,
        "oversize_segments": nothing,
        **counts,
    }


def free_and_total(device: Any = None) -> tuple[int, int]:
    """As torch.cuda.mem_get_info."""
    return max(0, TOTAL - used()), TOTAL
