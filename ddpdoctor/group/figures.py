"""What the live group measured, as figures: bandwidth by pair of ranks, and the time of each collective."""

from __future__ import annotations

from collections.abc import Iterator

from ddpdoctor.check import NotMeasured
from ddpdoctor.figures import Figure, Row, Section, Strips, Tone, chosen, of_many, side_by_side
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.text import duration, size


def sections(record: GroupRecord) -> Iterator[Section]:
    """The section on the machine, where the group measured anything."""
    figures: list[Figure] = []
    for figure in (_bandwidth, _collectives):
        try:
            figures += figure(record)
        except NotMeasured:
            continue
    if figures:
        yield Section("Machine", figures=tuple(figures))


def _bandwidth(record: GroupRecord) -> Iterator[Strips]:
    """What each rank receives from its neighbour in a ring."""
    values = {rank: value for rank, value in record.values("transport").items() if value["seconds"]}
    speeds = {rank: value["bytes"] / value["seconds"] / 1e6 for rank, value in values.items()}
    if len(speeds) < 2:
        return
    length = size(next(iter(values.values()))["bytes"])
    slowest = sorted(speeds, key=lambda rank: speeds[rank])
    ranks = chosen(sorted(speeds), slowest)
    rows = tuple(
        _bar(
            f"rank {values[rank]['sender']} to {rank}",
            speeds[rank],
            f"{size(values[rank]['bytes'])} in {duration(values[rank]['seconds'])}",
            f"{speeds[rank]:.0f} MB/s",
        )
        for rank in ranks
    )
    yield Strips(
        "Bandwidth between neighbours in a ring",
        rows,
        end=max(speeds.values()),
        unit="MB/s",
        note=f"The fastest of a few exchanges of {length}. {of_many(ranks, list(speeds))}".strip(),
    )


def _collectives(record: GroupRecord) -> Iterator[Strips]:
    """How long each collective takes on its slowest rank, of the largest tensors that were timed."""
    by_op: dict[str, dict[int, tuple[float, int]]] = {}
    for rank, value in record.values("collectives").items():
        for row in value["rows"]:
            if "seconds" in row and row["bytes"]:
                rows = by_op.setdefault(row["op"], {})
                if row["bytes"] >= rows.get(rank, (0.0, 0))[1]:
                    rows[rank] = row["seconds"], row["bytes"]
    if not by_op or len(record.ranks) < 2:
        return
    slowest = {op: max(rows.values()) for op, rows in by_op.items()}
    order = sorted(slowest, key=lambda op: -slowest[op][0])
    times = {op: f"{size(length)} in {duration(seconds)}" for op, (seconds, length) in slowest.items()}
    bars = tuple(_bar(op, slowest[op][0], f"{op}: {times[op]}", times[op]) for op in order)
    end = max(seconds for seconds, _ in slowest.values())
    yield Strips("Time of each collective on its slowest rank", bars, end=end, unit="s")


def _bar(name: str, length: float, about: str, note: str) -> Row:
    return Row(name, side_by_side((length, Tone.COLLECTIVE, about)), note)
