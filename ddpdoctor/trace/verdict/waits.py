"""Who waits for whom: the ranks at which all waiting ends, or the circle in which it goes round."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import networkx

from ddpdoctor.blame.place import Kind
from ddpdoctor.trace.verdict.standing import Standing, state_of


@dataclass(frozen=True)
class Waits:
    """The wait-for graph, followed to its end."""

    sinks: tuple[int, ...] = ()
    """Ranks that somebody waits for and that wait for no rank."""
    circle: tuple[int, ...] = ()
    """Where there are none: ranks that wait for each other in different collectives."""


def follow(crowd: Mapping[int, Standing]) -> Waits:
    """Follow every wait. Ranks in one state are one node, so that a thousand of them cost no more than one."""
    node_of: dict[int, Hashable] = {rank: state_of(one) if one.waits else rank for rank, one in crowd.items()}
    ranks_of: dict[Hashable, list[int]] = {}
    for rank, node in node_of.items():
        ranks_of.setdefault(node, []).append(rank)
    graph = networkx.DiGraph()
    graph.add_nodes_from(ranks_of)
    for node, ranks in ranks_of.items():
        if crowd[ranks[0]].waits:
            wanted = {node_of[other] for other in _wanted(crowd[ranks[0]], crowd)} - {node}
            graph.add_edges_from((node, other) for other in wanted)
    sinks = [node for node in graph if not graph.out_degree(node) and graph.in_degree(node)]
    if sinks:
        return Waits(sinks=_ranks(sinks, ranks_of))
    return Waits(circle=_ranks(_circle(graph), ranks_of))


def _wanted(one: Standing, crowd: Mapping[int, Standing]) -> list[int]:
    """The ranks without which its wait does not end."""
    peer = one.call.peer if one.call and one.place and one.place.kind is Kind.PAIR else None
    if peer is not None and peer in crowd:
        return [peer]
    members = one.group if one.group is not None else tuple(crowd)
    return [rank for rank in members if rank in crowd and rank != one.rank]


def _circle(graph: networkx.DiGraph) -> list[Hashable]:
    """The nodes that wait for each other, and for nobody else."""
    parts = [part for part in networkx.strongly_connected_components(graph) if len(part) > 1]
    final = (part for part in parts if all(set(graph.successors(node)) <= part for node in part))
    return list(next(final, ()))


def _ranks(nodes: list[Hashable], ranks_of: Mapping[Hashable, list[int]]) -> tuple[int, ...]:
    return tuple(sorted(rank for node in nodes for rank in ranks_of[node]))
