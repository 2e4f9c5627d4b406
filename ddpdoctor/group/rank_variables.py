"""Whether the launch variables that ranks see fit each other and the group they are in. Plain data, no torch."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ddpdoctor.model import Evidence
from ddpdoctor.redact import show_value
from ddpdoctor.text import ranks_phrase

NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
EXPECTED = (*NUMBERS, "MASTER_ADDR")
SHARED = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

Values: TypeAlias = Mapping[int, Mapping[str, Any]]
"""The measurement ``variables`` by rank."""


def contradictions(values: Values) -> Iterator[Evidence]:
    """Each a sentence and its ranks; what is missing or no number first, since nothing else can be said then."""
    if unreadable := [*_missing(values), *_not_numbers(values)]:
        yield from unreadable
        return
    yield from _against_group(values)
    yield from _not_shared(values)
    yield from _local_ranks(values)


def _missing(values: Values) -> Iterator[Evidence]:
    for name in EXPECTED:
        ranks = tuple(rank for rank, value in values.items() if name not in value["variables"])
        if ranks:
            yield Evidence(f"{name} is not set on {ranks_phrase(ranks)}", ranks)


def _not_numbers(values: Values) -> Iterator[Evidence]:
    for rank, value in values.items():
        for name in NUMBERS:
            text = value["variables"].get(name, "0")
            if not (text.isascii() and text.isdigit()):
                yield Evidence(f"{name}={show_value(name, text)} is not a number on rank {rank}", (rank,))


def _against_group(values: Values) -> Iterator[Evidence]:
    for rank, value in values.items():
        for name, group in (("RANK", value["rank"]), ("WORLD_SIZE", value["world_size"])):
            number = int(value["variables"][name])
            if number != group:
                what = "rank" if name == "RANK" else "size"
                yield Evidence(
                    f"{name}={number} on the process whose {what} in the group is {group}", (rank,)
                )
        stored = [int(text) for text in value["in_store"] if text and text.isdigit()]
        if stored != list(range(value["world_size"])):
            yield Evidence(f"the store holds RANK {stored} for a group of {value['world_size']}", (rank,))


def _not_shared(values: Values) -> Iterator[Evidence]:
    for name in SHARED:
        states: dict[str, list[int]] = {}
        for rank, value in values.items():
            states.setdefault(value["variables"][name], []).append(rank)
        if len(states) > 1:
            texts = (f"{show_value(name, text)} on {ranks_phrase(at)}" for text, at in states.items())
            yield Evidence(f"{name} differs: {', '.join(texts)}", tuple(values))


def _local_ranks(values: Values) -> Iterator[Evidence]:
    """By node: hosts may share a name, so the agent's number tells them apart where there is one."""
    nodes: dict[tuple[str, str], dict[int, list[int]]] = {}
    for rank, value in values.items():
        node = (value["host"], value["variables"].get("GROUP_RANK", ""))
        local = int(value["variables"]["LOCAL_RANK"])
        nodes.setdefault(node, {}).setdefault(local, []).append(rank)
    for (host, _), locals_ in nodes.items():
        ranks = tuple(rank for at in locals_.values() for rank in at)
        for local, at in locals_.items():
            if len(at) > 1:
                yield Evidence(f"{ranks_phrase(at)} on {host} have the same LOCAL_RANK={local}", tuple(at))
        sizes = {int(values[rank]["variables"]["LOCAL_WORLD_SIZE"]) for rank in ranks}
        if sizes != {len(ranks)}:
            text = " and ".join(map(str, sorted(sizes)))
            yield Evidence(f"LOCAL_WORLD_SIZE={text} on {host}, which runs {len(ranks)}", ranks)
