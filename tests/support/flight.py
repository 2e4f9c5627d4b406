"""Makes dumps of the flight recorder as torch writes them, for jobs of any size, with one fault planted."""

import json
import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ddpdoctor.blame.hang_snapshot import Dump
from ddpdoctor.hang.flight.reduce import reduce

FRAMES = [
    {
        "name": "all_reduce",
        "filename": "/venv/site-packages/torch/distributed/distributed_c10d.py",
        "line": 3245,
    },
    {"name": "wrapper", "filename": "/venv/site-packages/torch/distributed/c10d_logger.py", "line": 83},
    {"name": "train_step", "filename": "/jobs/train.py", "line": 88},
    {"name": "main", "filename": "/jobs/train.py", "line": 120},
]
Change = Callable[[int, list[dict[str, Any]]], list[dict[str, Any]]]


def entry(number: int, *, group: str = "0", operation: str = "all_reduce", **changes: Any) -> dict[str, Any]:
    """One collective that completed."""
    size = 1024 * (1 + number % 7)
    return {
        "record_id": number,
        "pg_id": int(group),
        "process_group": (group, "default_pg" if group == "0" else "undefined"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{operation}",
        "time_created_ns": 1_700_000_000_000_000_000 + number * 1_000_000,
        "time_discovered_started_ns": 1_700_000_000_000_100_000 + number * 1_000_000,
        "time_discovered_completed_ns": 1_700_000_000_000_200_000 + number * 1_000_000,
        "duration_ms": 0.1,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_sizes": [[size]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": FRAMES,
        **changes,
    }


def waiting(number: int, **changes: Any) -> dict[str, Any]:
    """One collective in which a rank stands."""
    return entry(
        number, **{"state": "started", "retired": False, "time_discovered_completed_ns": None, **changes}
    )


def ring(first: int, last: int, **changes: Any) -> list[dict[str, Any]]:
    """Completed collectives, the last included."""
    return [entry(number, **changes) for number in range(first, last + 1)]


def half(
    operation: str, own: int, peer: int, number: int, *, pending: bool = False, **changes: Any
) -> dict[str, Any]:
    """A send to, or a receive from, a peer of the same group; NCCL counts them apart from collectives."""
    arrow = "->" if operation == "send" else "<-"
    made = waiting if pending else entry
    return made(
        number,
        **{
            "profiling_name": f"nccl:{operation} {own}{arrow}{peer}",
            "is_p2p": True,
            "collective_seq_id": 0,
            "p2p_seq_id": number,
            "input_sizes": [[16]],
            **changes,
        },
    )


def batch(halves: list[dict[str, Any]], *, pending: bool = False) -> list[dict[str, Any]]:
    """What batch_isend_irecv leaves: no part is ever marked as completed, only what ends it."""
    number = halves[0]["p2p_seq_id"]
    last = (waiting if pending else entry)(
        number,
        profiling_name="nccl:coalesced",
        is_p2p=True,
        collective_seq_id=0,
        p2p_seq_id=number,
        input_sizes=[],
        input_dtypes=[],
    )
    parts = [{**one, "p2p_seq_id": number, "state": "scheduled", "retired": False} for one in halves]
    return [*parts, last]


def job(
    world_size: int, entries: Callable[[int], list[dict[str, Any]] | None], **groups: Iterable[int]
) -> dict[int, Dump]:
    """The dumps of a job, by rank, as :func:`write_job` writes them, without the files."""
    dumps = {}
    for rank in range(world_size):
        if (held := entries(rank)) is not None:
            dumps[rank] = reduce(dump(held, _groups_of(rank, world_size, groups)), rank, Path("rank_0"))
    return dumps


def dump(entries: list[dict[str, Any]], groups: dict[str, Iterable[int]]) -> dict[str, Any]:
    """A rank's dump."""
    config = {
        name: {"name": name, "desc": "default_pg" if name == "0" else "undefined", "ranks": str(list(ranks))}
        for name, ranks in groups.items()
    }
    own = {name: [e for e in entries if e["process_group"][0] == name] for name in groups}
    status = {
        name: {
            "last_enqueued_collective": max((e["collective_seq_id"] for e in of), default=-1),
            "last_started_collective": -1,
            "last_completed_collective": max(
                (e["collective_seq_id"] for e in of if e["retired"]), default=-1
            ),
        }
        for name, of in own.items()
    }
    return {"version": "2.10", "pg_config": config, "pg_status": status, "entries": entries}


def write_job(
    folder: Path,
    world_size: int,
    entries: Callable[[int], list[dict[str, Any]] | None],
    *,
    as_json: bool = False,
    **groups: Iterable[int],
) -> Path:
    """One file a rank; ``entries(rank)`` is what its ring holds, None where it left no dump.

    Further groups go by keywords, ``g1=range(4)`` for the group named 1.
    """
    folder.mkdir(exist_ok=True)
    for rank in range(world_size):
        held = entries(rank)
        if held is not None:
            said = dump(held, _groups_of(rank, world_size, groups))
            data = json.dumps(said).encode() if as_json else pickle.dumps(said, protocol=2)
            (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
    return folder


def _groups_of(rank: int, world_size: int, groups: Mapping[str, Iterable[int]]) -> dict[str, Iterable[int]]:
    named = {"0": range(world_size), **{name[1:]: ranks for name, ranks in groups.items()}}
    return {name: ranks for name, ranks in named.items() if rank in ranks}
