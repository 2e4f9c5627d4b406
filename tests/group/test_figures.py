import pytest

from ddpdoctor.figures import MOST_ROWS, Strips
from ddpdoctor.group.figures import sections
from ddpdoctor.group.group_record import GroupRecord, Measured, RankRecord
from ddpdoctor.launch import Launch

MIB = 1024 * 1024
ROWS = [
    {"op": "all_reduce sum", "dtype": "float32", "bytes": 4096, "seconds": 0.001},
    {"op": "all_reduce sum", "dtype": "float32", "bytes": 8 * MIB, "seconds": 0.020},
    {"op": "broadcast", "dtype": "float32", "bytes": 8 * MIB, "seconds": 0.007},
    {"op": "broadcast", "dtype": "int64", "bytes": 8 * MIB},
    {"op": "barrier", "dtype": "", "bytes": 0, "seconds": 0.001},
]


def group(received, wanted=("transport", "collectives")):
    """Ranks that received 1 MB of their neighbour in these seconds; the last has slow collectives."""
    size = len(received)

    def measured(rank):
        slow = 2 if rank == size - 1 else 1
        rows = [{**row, "seconds": row["seconds"] * slow} if "seconds" in row else row for row in ROWS]
        link = {"sender": (rank - 1) % size, "bytes": 1_000_000, "seconds": received[rank]}
        return {"transport": Measured(link), "collectives": Measured({"rows": rows})}

    ranks = tuple(RankRecord(rank, host="node0", measured=measured(rank)) for rank in range(size))
    return GroupRecord(Launch(nproc=size), ranks, wanted=frozenset(wanted))


def figures_of(record):
    return [figure for section in sections(record) for figure in section.figures]


def test_bandwidth_of_each_neighbour_and_time_of_each_collective():
    bandwidth, collectives = figures_of(group([0.001, 0.010, 0.001]))
    assert isinstance(bandwidth, Strips)
    assert [(row.name, row.note) for row in bandwidth.rows] == [
        ("rank 2 to 0", "1000 MB/s"),
        ("rank 0 to 1", "100 MB/s"),
        ("rank 1 to 2", "1000 MB/s"),
    ]
    assert bandwidth.end == pytest.approx(1000)
    assert [(row.name, row.note) for row in collectives.rows] == [
        ("all_reduce sum", "8 MiB in 40.0 ms"),
        ("broadcast", "8 MiB in 14.0 ms"),
    ]


def test_of_many_ranks_the_slowest_are_shown():
    bandwidth, _ = figures_of(group([0.010 if rank == 77 else 0.001 for rank in range(128)]))
    assert len(bandwidth.rows) <= MOST_ROWS
    assert "rank 76 to 77" in [row.name for row in bandwidth.rows]


def test_what_was_not_measured_is_no_figure():
    assert figures_of(group([0.001, 0.001], wanted=())) == []
    assert figures_of(group([None])) == []
