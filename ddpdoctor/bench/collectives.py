"""Times collectives by size. Runs inside the ranks.

Sizes are those of nccl-tests: of the whole tensor that a rank has at the end of all_gather, or at the beginning of
reduce_scatter. Each call is waited for before the next, so a small one shows its latency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddpdoctor.bench.setting import OPERATIONS, Setting
from ddpdoctor.group.measure.collectives import timed
from ddpdoctor.text import size

WARM_UP = 2
FEWEST_CALLS, MOST_CALLS = 5, 500


def measure(setting: Setting, device: torch.device, doing: Callable[[str], None]) -> list[dict[str, Any]]:
    """Seconds of every call, for each operation and size; or why the backend does not have it."""
    return [_row(setting, device, doing, name, length) for name in OPERATIONS for length in setting.sizes]


def _row(
    setting: Setting, device: torch.device, doing: Callable[[str], None], name: str, length: int
) -> dict[str, Any]:
    doing(f"{name} of {size(length)}")
    row = {"operation": name, "bytes": length}
    call = _call(name, length, device)
    try:
        once = min(timed(device, call) for _ in range(WARM_UP))
    except (RuntimeError, NotImplementedError, ValueError) as refused:
        # A backend says so on every rank, before it sends anything.
        return {**row, "unsupported": str(refused).partition("\n")[0]}
    calls = torch.tensor(
        [min(MOST_CALLS, max(FEWEST_CALLS, round(setting.collective_seconds / once)))], device=device
    )
    dist.broadcast(calls, src=0)
    dist.barrier()
    return {**row, "seconds": [timed(device, call) for _ in range(int(calls))]}


def _call(name: str, length: int, device: torch.device) -> Callable[[], object]:
    ranks = dist.get_world_size()
    # Sums of zeros stay zeros however often they are taken. Written, or all pages would be the same one.
    part = torch.empty(max(1, length // 4 // ranks), device=device).fill_(0.0)
    whole = torch.empty(part.numel() * ranks, device=device).fill_(0.0)
    # Their names since torch 2.13, and before.
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    calls: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: gather(whole, part),
        "reduce_scatter": lambda: scatter(part, whole),
        "broadcast": lambda: dist.broadcast(whole, src=0),
    }
    return calls[name]
