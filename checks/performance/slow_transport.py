from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

from ddpdoctor.check import Check, Evidence, Finding, Judgement, Passed
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log
from ddpdoctor.nodes.links import Link
from ddpdoctor.text import by_state, duration, escape, listing, ranks_do, ranks_phrase, size

FAR_OFF = 10.0
"""How many times the median the slow one takes."""
FLOOR = {"gloo": 0.1, "nccl": 0.02}
"""Seconds below which nothing is called slow. A rank that shares its core with three others is late by its turns
on the core, some tens of milliseconds; the fastest of six exchanges stays below that."""
FLOOR_FULL_SIZE = {"gloo": 0.5, "nccl": 0.05}
"""The same for a collective over 8 MiB."""
LAUNCH_FLOOR = 0.1
"""Seconds from which starting a collective, which waits for nobody, is slow. Of several attempts the fastest took
at most 6 ms where 60 other processes and 8 ranks shared two cores."""
FAST_LINK = 125e6
"""Bytes a second, of 1 Gbit/s: no connection between hosts that is as fast is called slow."""
LATE = 0.005
"""Seconds for a byte there and back, of the fastest of some: less is no matter of a link."""
LARGE = 512 * 1024
"""Bytes from which the time says something about the bandwidth."""
ALL_REDUCE = "all_reduce sum"

Timings: TypeAlias = dict[tuple[str, int], float]
"""Seconds by operation and bytes."""
Launches: TypeAlias = dict[int, dict[str, float]]
"""Seconds by rank and operation."""


class SlowTransport(Check):
    """One rank, or one collective, is far slower than the others.

    What it finds:
        A rank that takes 0.1 s or more to start a collective, before it waits for another rank; a rank that its
        neighbours in a ring wait for ten times as long as others wait; or a collective that takes ten times as long
        as the others for each byte. In a check of several hosts, also a connection between two of them that is ten
        times slower than the others. The fastest of several attempts counts, so that a busy machine is not mistaken
        for a slow one. In a job's output, hosts on which NCCL uses sockets where others use InfiniBand.

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
    title = "no rank or collective is far slower than the others"
    timed = True
    measurements = ("collectives", "transport")

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        self.require(len(ranks.ranks) != 1, "needs at least two ranks")
        return self._hosts(ranks) or self._ranks(ranks)

    def _hosts(self, ranks: GroupRecord) -> Finding | None:
        if (host := _slow_host(ranks.links)) is not None:
            return self._host(host, ranks)
        link = _slow_link(ranks.links)
        return self._link(link, ranks) if link is not None else None

    def _ranks(self, ranks: GroupRecord) -> Judgement:
        seconds = _seconds(ranks.values("collectives"))
        received = {rank: value["seconds"] for rank, value in ranks.values("transport").items()}
        senders = {rank: value["sender"] for rank, value in ranks.values("transport").items()}
        table = _table(seconds)
        launches = _launches(ranks.values("collectives"))
        if any(_slow_starts(launches).values()):
            return self._launch(launches, table)
        if (rank := _slow_rank(received, senders, FLOOR.get(ranks.backend, max(FLOOR.values())))) is not None:
            return self._rank(rank, received, table)
        op = _slow_collective(seconds, FLOOR_FULL_SIZE.get(ranks.backend, max(FLOOR_FULL_SIZE.values())))
        if op is not None:
            return self._collective(op, seconds, ranks, table)
        return Passed(_summary(seconds), (*table, *ranks.nccl))

    def examine_log(self, log: Log) -> Judgement:
        networks = {process: facts.network for process, facts in log.nccl.items() if facts.network}
        slow = _hosts(process for process, network in networks.items() if network == "Socket")
        fast = _hosts(process for process, network in networks.items() if network != "Socket") - slow
        if not networks:
            return NOT_IN_OUTPUT
        if not slow or not fast:
            return Passed(f"NCCL uses the network {listing(sorted(set(networks.values())))} on every host")
        return self._fell_back(sorted(slow), networks)

    def _fell_back(self, slow: list[str], networks: Mapping[str, str]) -> Finding:
        others = sorted({network for network in networks.values() if network != "Socket"})
        return self.warn(
            f"NCCL uses sockets on {listing(slow)}, and {listing(others)} on the other hosts",
            why="Every collective waits for its slowest rank. NCCL found no fast network on these hosts and fell "
            "back to sockets, which have a tenth of the bandwidth of InfiniBand, so the whole job is that slow.",
            fix="ibv_devinfo    # on each host: is the device there, its port active, and visible "
            "in the container?\nNCCL_NET=IB    # makes NCCL fail where it would fall back",
            evidence=[
                f"{escape(process)}: Using network {escape(network)}"
                for process, network in sorted(networks.items(), key=lambda it: (it[1] != "Socket", it))[:8]
            ],
        )

    def _launch(self, launches: Launches, table: tuple[Evidence, ...]) -> Finding:
        slow = {rank: ops for rank, ops in _slow_starts(launches).items() if ops}
        typical = {rank: median(seconds.values()) for rank, seconds in launches.items()}
        others = [seconds for rank, seconds in typical.items() if rank not in slow]
        ops = list(dict.fromkeys(op for of_rank in slow.values() for op in of_rank))
        what = ops[0] if len(ops) == 1 else f"each of {len(ops)} collectives"
        seconds = median(launches[rank][op] for rank, of_rank in slow.items() for op in of_rank)
        than = f"the other ranks {duration(median(others))}" if others else "which waits for no other rank"
        starts = by_state(typical, lambda seconds: f"starting a collective takes {duration(seconds)}")
        return self.warn(
            f"{ranks_do(slow, 'take')} {duration(seconds)} to start {what}, {than}",
            why="Starting a collective waits for no other rank, so the time is spent in this process: code around "
            "torch.distributed, a profiler or a tracer. All ranks then wait for the slowest, in every step.",
            fix=f"see on {ranks_phrase(slow)} whose function runs, and where it spends its time:\n"
            f"print(torch.distributed.{ops[0].split()[0]}.__code__.co_filename)\npy-spy record --pid PID",
            ranks=tuple(slow),
            evidence=(*starts, *table),
        )

    def _host(self, slow: int, ranks: GroupRecord) -> Finding:
        names = ranks.node_names
        best = _best_rates(ranks.links)
        others = min(rate for host, rate in best.items() if host != slow)
        return self._between_hosts(
            f"the connections of {names[slow]} carry at most {size(best[slow])}/s, those of the other hosts "
            f"{size(others)}/s",
            (slow,),
            ranks,
        )

    def _link(self, slow: Link, ranks: GroupRecord) -> Finding:
        names = ranks.node_names
        others = [link for link in ranks.links if link != slow and link.rate]
        usual = _link_text(min(others, key=lambda link: link.rate))
        return self._between_hosts(
            f"the connection from {names[slow.source]} to {names[slow.target]} is slow: {_link_text(slow)}; the "
            f"others at least {usual}",
            (slow.source, slow.target),
            ranks,
        )

    def _between_hosts(self, headline: str, hosts: Sequence[int], ranks: GroupRecord) -> Finding:
        names = ranks.node_names
        return self.warn(
            headline,
            why="Every collective between the hosts is as slow as their slowest connection, in every step. A host "
            "may use another interface, a port that has fallen back to a lower speed, or a busy switch.",
            fix=f"ethtool eth0 | grep Speed; ip -s link     # on {listing([names[host] for host in hosts])}\n"
            "name the fast interface on every host: NCCL_SOCKET_IFNAME=eth1 GLOO_SOCKET_IFNAME=eth1",
            ranks=tuple(rank for node in ranks.nodes if node.node_rank in hosts for rank in node.ranks),
            evidence=[f"{names[it.source]} to {names[it.target]}: {_link_text(it)}" for it in ranks.links],
        )

    def _rank(self, rank: int, received: Mapping[int, float], table: tuple[Evidence, ...]) -> Finding:
        slow, usual = duration(max(received.values())), duration(_typical(received))
        links = by_state(received, lambda s: f"the data of its neighbour took {duration(s)}")
        return self.warn(
            f"rank {rank} takes {slow} to exchange data with its neighbours, the other ranks {usual}",
            ranks=(rank,),
            evidence=(*links, *table),
        )

    def _collective(
        self, slow: tuple[str, int], seconds: Timings, ranks: GroupRecord, table: tuple[Evidence, ...]
    ) -> Finding:
        op, length = slow
        others = median(n / s for (name, n), s in _large(seconds).items() if name.split()[0] != op.split()[0])
        return self.warn(
            f"{op} moves {size(length / seconds[slow])}/s over {size(length)}, the other collectives "
            f"{size(others)}/s",
            ranks=tuple(rank.rank for rank in ranks.ranks),
            evidence=table,
        )


def _best_rates(links: Sequence[Link]) -> dict[int, float]:
    """By host, what its fastest connection carries; the data of one direction make those of the other late."""
    best: dict[int, float] = {}
    for link in links:
        for host in (link.source, link.target) if link.rate else ():
            best[host] = max(link.rate, best.get(host, 0.0))
    return best


def _slow_host(links: Sequence[Link]) -> int | None:
    """The host all of whose connections are far slower than those between the others; None where none is."""
    best = _best_rates(links)
    if len(best) < 3:
        return None
    slowest = min(best, key=lambda host: best[host])
    others = median(rate for host, rate in best.items() if host != slowest)
    return slowest if best[slowest] < min(FAST_LINK, others / FAR_OFF) else None


def _slow_link(links: Sequence[Link]) -> Link | None:
    """The connection between hosts that is far slower than the others; None where none is, or nothing is known."""
    known = [link for link in links if not link.error and link.rate]
    if len(known) < 2:
        return None
    slowest = min(known, key=lambda link: link.rate)
    others = median(link.rate for link in known if link is not slowest)
    if slowest.rate < min(FAST_LINK, others / FAR_OFF):
        return slowest
    latest = max(known, key=lambda link: link.seconds)
    usual = median(link.seconds for link in known if link is not latest)
    return latest if latest.seconds > max(LATE, FAR_OFF * usual) else None


def _link_text(link: Link) -> str:
    return f"{size(link.rate)}/s, {duration(link.seconds)} there and back"


def _hosts(processes: Iterable[str]) -> set[str]:
    """The hosts of processes as NCCL names them: ``host:pid``."""
    return {process.partition(":")[0] for process in processes}


def _seconds(values: Mapping[int, Mapping[str, Any]]) -> Timings:
    """The slowest rank's time of each operation and size that was timed."""
    slowest: Timings = {}
    for value in values.values():
        for row in value["rows"]:
            if row.get("seconds") is not None:
                key = (row["op"], row["bytes"])
                slowest[key] = max(slowest.get(key, 0.0), row["seconds"])
    return slowest


def _launches(values: Mapping[int, Mapping[str, Any]]) -> Launches:
    """Each rank's time to start each operation, the shortest of the sizes that were tried."""
    fastest: Launches = {rank: {} for rank in values}
    for rank, value in values.items():
        for row in value["rows"]:
            if row.get("launch") is not None:
                fastest[rank][row["op"]] = min(row["launch"], fastest[rank].get(row["op"], row["launch"]))
    return fastest


def _slow_starts(launches: Launches) -> dict[int, list[str]]:
    """By rank, the operations that it starts slowly."""
    return {
        rank: [op for op, seconds in starts.items() if seconds > LAUNCH_FLOOR]
        for rank, starts in launches.items()
    }


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
    """The collective far slower per byte than the others; None where several are, since then none stands out.

    That all_reduce is slow with each of its operations is one case.
    """
    large = _large(seconds)
    a_byte = median(value / key[1] for key, value in large.items())
    slow = [key for key, value in large.items() if value > max(floor, FAR_OFF * key[1] * a_byte)]
    functions = {op.split()[0] for op, _ in slow}
    return max(slow, key=lambda key: seconds[key]) if len(functions) == 1 else None


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
    return tuple(Evidence(f"{op}: {', '.join(rates)}") for op, rates in lines.items())
