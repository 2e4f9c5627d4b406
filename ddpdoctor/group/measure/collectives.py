"""Every collective that the backend offers, against the answer that arithmetic gives, and how long it takes."""

import time
from collections.abc import Callable, Iterator
from itertools import product
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from ddpdoctor.group.context import Context
from ddpdoctor.group.trials import COLLECTIVES, Pattern, wait
from ddpdoctor.text import size

SECONDS = 20.0
DTYPES = (torch.float32, torch.bfloat16, torch.int64)
SMALL, LARGE = 4 * 1024, 8 * 1024 * 1024
"""Bytes: what shows the latency, and what shows the bandwidth and is cut into pieces by every backend."""
TIMED_AGAIN = ("all_reduce sum", "broadcast", "all_gather")
"""What DDP runs, and is worth a second look: the first call may be slow for reasons that do not come back."""
REPETITIONS = 2
STANDS_OUT, STANDS_OUT_SECONDS = 3.0, 0.1
"""Times the median, and at least so many seconds: what is worth more looks than one."""
LAUNCH_STANDS_OUT_SECONDS = 0.05
"""A launch waits for nobody and takes less than a millisecond, more only where the rank loses its CPU in it."""
TIMES_AGAIN = 5

_REFUSALS = (
    "support",
    "cannot use reduceop",
    "not implemented",
    "invalid scalar type",
    "unknown scalar type",
)
"""How a backend says, before it sends anything, that it does not have an operation."""


def measure(context: Context) -> dict[str, Any]:
    """One row for each operation, type and size, with the shortest of a few times where it was timed.

    ``seconds`` is the whole call, in which ranks wait for each other, so all are as slow as the slowest.
    ``launch`` is the part that waits for nobody: an asynchronous call until it returns. It tells whose fault it is.
    """
    rows = [_row(context, *case) for case in _cases(context.world_size)]
    # First: the store below brings late ranks together, and would hide a bad barrier.
    barrier = _barrier(context)
    _time_again(context, {f"{row['op']}, {row['bytes']} B": row for row in rows if "seconds" in row})
    return {"rows": [*rows, barrier]}


def _cases(world_size: int) -> Iterator[tuple[str, torch.dtype, int]]:
    for length, dtype, (name, collective) in product((SMALL, LARGE), DTYPES, COLLECTIVES.items()):
        if world_size >= collective.fewest_ranks and (dtype.is_floating_point or collective.integers):
            yield name, dtype, length


def _row(context: Context, name: str, dtype: torch.dtype, length: int) -> dict[str, Any]:
    dtype_name = str(dtype).removeprefix("torch.")
    pattern = Pattern(context.rank, context.world_size, dtype, context.device, length)
    row: dict[str, Any] = {"op": name, "dtype": dtype_name, "bytes": pattern.bytes}
    context.step(f"{name} {dtype_name} {size(length)}")
    trial = COLLECTIVES[name].prepare(pattern)
    try:
        seconds = timed(context.device, trial.call)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        if not any(word in str(error).lower() for word in _REFUSALS):
            raise
        return {**row, "unsupported": str(error).splitlines()[0]}
    row["wrong"] = trial.first_wrong()
    if dtype is torch.float32:
        row["seconds"] = seconds
        if length == SMALL or name in TIMED_AGAIN:
            _time(context, trial.call, row, REPETITIONS)
    return row


def _time_again(context: Context, rows: dict[str, dict[str, Any]]) -> None:
    """Look again at what took far longer than the rest: on a busy machine any call may, once. The ranks agree through
    the store on what that is: a collective that is wrong must not decide it."""
    context.step("the store: which collectives to time again")
    timings = {key: (row["seconds"], row.get("launch", 0.0)) for key, row in rows.items()}
    context.publish(f"collectives/{context.rank}", timings)
    everybody = context.read_all("collectives")
    slowest = {key: [*map(max, zip(*(timed[key] for timed in everybody), strict=True))] for key in rows}
    large = [seconds for key, (seconds, _) in slowest.items() if rows[key]["bytes"] > 2 * SMALL]
    limit = max(STANDS_OUT_SECONDS, STANDS_OUT * median(large or [0.0]))
    for key, (seconds, launch) in slowest.items():
        if seconds > limit or launch > LAUNCH_STANDS_OUT_SECONDS:
            _again(context, rows[key])


def _again(context: Context, row: dict[str, Any]) -> None:
    context.step(f"{row['op']} float32 {size(row['bytes'])}, timed again")
    pattern = Pattern(context.rank, context.world_size, torch.float32, context.device, row["bytes"])
    _time(context, COLLECTIVES[row["op"]].prepare(pattern).call, row, TIMES_AGAIN)


def _time(context: Context, call: Callable[..., Any], row: dict[str, Any], times: int) -> None:
    """Lower the row's times to the shortest of these calls."""
    for _ in range(times):
        launch, seconds = _timed_apart(context, call)
        row["seconds"] = min(seconds, row.get("seconds", seconds))
        row["launch"] = min(launch, row.get("launch", launch))


def _timed_apart(context: Context, call: Callable[..., Any]) -> tuple[float, float]:
    """Seconds until an asynchronous call returned, and until its work was done."""
    synchronize(context.device)
    start = time.perf_counter()
    works = call(async_op=True)
    launched = time.perf_counter()
    wait(works)
    synchronize(context.device)
    return launched - start, time.perf_counter() - start


def timed(device: torch.device, call: Callable[[], object]) -> float:
    """Seconds of a call, and of what it left to the device."""
    synchronize(device)
    start = time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    """Wait for what was queued on a GPU; a CPU has nothing queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _barrier(context: Context) -> dict[str, Any]:
    """Nobody may leave the barrier before everybody has come: each rank leaves a sign in the store first."""
    context.publish(f"barrier/{context.rank}", True)
    context.step("barrier")
    dist.barrier()
    absent = [r for r in range(context.world_size) if not context.is_published(f"barrier/{r}")]
    wrong = {"index": absent[0], "expected": 1, "got": 0} if absent else None
    row = {"op": "barrier", "dtype": "", "bytes": 0, "wrong": wrong}
    _time(context, dist.barrier, row, REPETITIONS)
    return row
