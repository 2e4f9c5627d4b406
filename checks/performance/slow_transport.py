from collections.abc import Mapping
from statistics import median
from typing import Any, TypeAlias

from ddpdoctor.check import Check
from ddpdoctor.group.record import GroupRecord
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.text import duration, size

FAR_OFF = 10.0
"""How many times the median the slow one takes."""
FLOOR = {"gloo": 0.1, "nccl": 0.02}
"""Seconds below which nothing is called slow. A rank that shares its core with three others is late by its turns
on the core, some tens of milliseconds; the fastest of six exchanges stays below that."""
FLOOR_FULL_SIZE = {"gloo": 0.5, "nccl": 0.05}
"""The same for a collective over 8 MiB."""
LARGE = 512 * 1024
"""Bytes from which the time says something about the bandwidth."""
ALL_REDUCE = "all_reduce sum"

Timings: TypeAlias = dict[tuple[str, int], float]
"""Seconds by operation and bytes."""


class SlowTransport(Check):
    """One rank, or one collective, is far slower than the others.

    What it finds:
        A rank that its neighbours in a ring wait for ten times as long as others wait, or a collective that
        takes ten times as long as the others for each byte. The fastest of several attempts
        counts, so that a busy machine is not mistaken for a slow one.

    Why it matters:
        A collective ends when its slowest rank has taken part. One rank with a slow connection, or one
        operation that runs on a slower transport, holds up every step of every rank.

    Example:
        One of four nodes reaches the others by the management network of 1 Gbit/s:
            NCCL_SOCKET_IFNAME=eth0          # the fast network is ib0 there
        Or NCCL falls back from InfiniBand or P2P to sockets on one node, and says so only with NCCL_DEBUG=INFO.

    Fix:
        Compare the interface and transport of the slow rank with the others':
            NCCL_DEBUG=INFO torchrun ... train.py 2>&1 | grep -E "NET/|via"
        Name the fast interface with NCCL_SOCKET_IFNAME (gloo: GLOO_SOCKET_IFNAME) on every node.
    """

    code = "DD605"
    name = "slow-transport"
    family = Family.PERFORMANCE
    title = "no rank or collective is far slower than the others"
    measurements = ("collectives", "transport")

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if len(ranks.ranks) == 1:
            return Skipped("one rank has nobody to talk to")
        seconds = _seconds(ranks.values("collectives"))
        received = {rank: value["seconds"] for rank, value in ranks.values("transport").items()}
        senders = {rank: value["sender"] for rank, value in ranks.values("transport").items()}
        table = _table(seconds)
        rank = _slow_rank(received, senders, FLOOR.get(ranks.backend, max(FLOOR.values())))
        if rank is not None:
            return [self._rank(rank, received, ranks.backend, table)]
        op = _slow_collective(seconds, FLOOR_FULL_SIZE.get(ranks.backend, max(FLOOR_FULL_SIZE.values())))
        if op is not None:
            return [self._collective(op, seconds, ranks, table)]
        return Passed(_summary(seconds), (*table, *ranks.nccl))

    def _rank(
        self, rank: int, received: Mapping[int, float], backend: str, table: tuple[Evidence, ...]
    ) -> Finding:
        slow, usual = duration(max(received.values())), duration(_typical(received))
        links = tuple(
            Evidence(f"the data of its neighbour took {duration(s)}", (r,)) for r, s in received.items()
        )
        return self.warn(
            f"rank {rank} takes {slow} to exchange data with its neighbours, the other ranks {usual}",
            why="Every collective waits for its slowest rank, so this one sets the pace of all. Its host, its "
            "network or its GPU's link is slower than the others', or something else keeps it busy.",
            fix=_fix(backend),
            ranks=(rank,),
            evidence=(*links, *table),
        )

    def _collective(
        self, slow: tuple[str, int], seconds: Timings, ranks: GroupRecord, table: tuple[Evidence, ...]
    ) -> Finding:
        op, length = slow
        others = median(n / s for (name, n), s in _large(seconds).items() if name != op)
        return self.warn(
            f"{op} moves {size(length / seconds[slow])}/s over {size(length)}, the other collectives "
            f"{size(others)}/s",
            why=f"{op} waits for something that the other collectives do not wait for: another transport or "
            "algorithm, or code around torch.distributed. Every step that uses it is as slow.",
            fix=_fix(ranks.backend),
            ranks=tuple(one.rank for one in ranks.ranks),
            evidence=table,
        )


def _seconds(values: Mapping[int, Mapping[str, Any]]) -> Timings:
    """The slowest rank's time of each operation and size that was timed."""
    found: Timings = {}
    for value in values.values():
        for row in value["rows"]:
            if row.get("seconds") is not None:
                key = (row["op"], row["bytes"])
                found[key] = max(found.get(key, 0.0), row["seconds"])
    return found


def _slow_rank(received: Mapping[int, float], senders: Mapping[int, int], floor: float) -> int | None:
    """The one rank whose links are slow; of two ranks nobody can tell which.

    A rank that is slow is late with what it sends, and often with what it receives: the link from it is slow,
    perhaps the one to it, and no other.
    """
    if len(received) < 3:
        return None
    limit = max(floor, FAR_OFF * _typical(received))
    late = {rank for rank, seconds in received.items() if seconds > limit}
    blamed = {senders[rank] for rank in late}
    if len(late) == 2:
        blamed &= late
    return blamed.pop() if len(late) in (1, 2) and len(blamed) == 1 else None


def _typical(received: Mapping[int, float]) -> float:
    """The lower median: one slow rank of three or four makes two links slow."""
    return sorted(received.values())[len(received) // 2 - 1]


def _slow_collective(seconds: Timings, floor: float) -> tuple[str, int] | None:
    """The collective far slower per byte than the others; None where several are, since then none stands out."""
    large = _large(seconds)
    a_byte = median(value / key[1] for key, value in large.items())
    slow = [key for key, value in large.items() if value > max(floor, FAR_OFF * key[1] * a_byte)]
    return slow[0] if len(slow) == 1 else None


def _large(seconds: Timings) -> Timings:
    return {key: value for key, value in seconds.items() if key[1] >= LARGE}


def _summary(seconds: Timings) -> str:
    sizes = sorted(length for op, length in seconds if op == ALL_REDUCE)
    latency, longest = (seconds[ALL_REDUCE, length] for length in (sizes[0], sizes[-1]))
    return f"all_reduce takes {duration(latency)}, and moves {size(sizes[-1] / longest)}/s over {size(sizes[-1])}"


def _table(seconds: Timings) -> tuple[Evidence, ...]:
    lines: dict[str, list[str]] = {}
    for (op, length), value in seconds.items():
        rate = f"{size(length / value)}/s with {size(length)}"
        lines.setdefault(op, []).append(rate if length >= LARGE else duration(value))
    return tuple(Evidence(f"{op}: {', '.join(said)}") for op, said in lines.items())


def _fix(backend: str) -> str:
    if backend == "nccl":
        return "NCCL_DEBUG=INFO ddpdoctor check, and compare the transports (NET/, via P2P, via SHM) of the ranks"
    return (
        "name the fast interface on every node, for instance GLOO_SOCKET_IFNAME=eth1 (ip -br addr lists them)"
    )
