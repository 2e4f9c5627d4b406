from ddpdoctor.model import Level, Source
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped

MIB = 1024 * 1024


def group(received, **slow):
    """Ranks that received their neighbour's data in these seconds; ``slow`` are collectives' seconds at 8 MiB."""
    nproc = len(received)
    ops = {"all_reduce sum": 0.020, "broadcast": 0.007, "all_gather": 0.013, **slow}
    rows = [{"op": op, "dtype": "float32", "bytes": 8 * MIB, "seconds": s} for op, s in ops.items()]
    rows.append({"op": "all_reduce sum", "dtype": "float32", "bytes": 4096, "seconds": 0.004})
    rows.append({"op": "all_reduce sum", "dtype": "int64", "bytes": 4096})
    links = [{"sender": (rank - 1) % nproc, "seconds": s} for rank, s in enumerate(received)]
    return record("collectives", [{"rows": rows}] * nproc, also={"transport": links})


def started(*seconds, op="broadcast"):
    """Ranks that took these seconds to start one operation, and little for all others."""
    rows = [
        [
            {"op": name, "dtype": "float32", "bytes": 8 * MIB, "seconds": max(seconds), "launch": own}
            for name, own in (("all_reduce sum", one if op == "all" else 1e-4), ("broadcast", one))
        ]
        + [{"op": "all_reduce sum", "dtype": "float32", "bytes": 4096, "seconds": 0.3, "launch": one}]
        for one in seconds
    ]
    links = [{"sender": (rank - 1) % len(seconds), "seconds": 0.001} for rank in range(len(seconds))]
    return record("collectives", [{"rows": row} for row in rows], also={"transport": links})


def test_a_rank_that_starts_every_collective_late():
    finding = only_finding("DD605", Source.GROUP, started(1e-4, 0.3, 1e-4, 1e-4, op="all"))
    assert finding.headline == (
        "rank 1 takes 300.0 ms to start each of 2 collectives, the other ranks 100 us"
    )
    assert finding.ranks == (1,)
    assert "each of" not in only_finding("DD605", Source.GROUP, started(1e-4, 0.3)).headline


def test_one_collective_that_every_rank_starts_late():
    finding = only_finding("DD605", Source.GROUP, started(0.3, 0.3))
    assert finding.headline == "ranks 0-1 take 300.0 ms to start broadcast, which waits for no other rank"


def test_ranks_that_lose_their_cpu_in_a_launch_stay_silent():
    passed("DD605", Source.GROUP, started(1e-4, 0.09, 0.06, 1e-4, op="all"))


def test_the_rank_between_two_slow_links_is_named():
    finding = only_finding("DD605", Source.GROUP, group([0.001, 0.002, 0.300, 0.301]))
    assert finding.level is Level.WARN
    assert finding.headline == (
        "rank 2 takes 301.0 ms to exchange data with its neighbours, the other ranks 2.0 ms"
    )
    assert finding.ranks == (2,)


def test_a_rank_that_only_sends_slowly():
    assert only_finding("DD605", Source.GROUP, group([0.001, 0.001, 0.001, 0.300])).ranks == (2,)


def test_three_ranks_are_enough():
    assert only_finding("DD605", Source.GROUP, group([0.001, 0.300, 0.300])).ranks == (1,)


def test_a_collective_far_below_the_others():
    finding = only_finding("DD605", Source.GROUP, group([0.001] * 4, broadcast=2.0))
    assert finding.headline == "broadcast moves 4 MiB/s over 8 MiB, the other collectives 508 MiB/s"


def test_one_function_that_is_slow_with_all_its_operations():
    slow = {"all_reduce sum": 6.0, "all_reduce avg": 5.0, "gather": 0.01, "scatter": 0.01}
    assert only_finding("DD605", Source.GROUP, group([0.001] * 4, **slow)).headline.startswith(
        "all_reduce sum moves"
    )
    passed("DD605", Source.GROUP, group([0.001] * 4, gather=6.0, scatter=6.0, reduce_scatter=0.01))


def test_a_busy_machine_stays_silent():
    passed("DD605", Source.GROUP, group([0.002, 0.060, 0.004, 0.090, 0.001, 0.030, 0.002, 0.080]))
    passed("DD605", Source.GROUP, group([0.2, 0.3, 0.001, 0.4, 0.25, 0.3, 0.001, 0.2]))
    passed("DD605", Source.GROUP, group([0.002] * 4, broadcast=0.3))


def test_two_ranks_cannot_tell_which_is_slow():
    passed("DD605", Source.GROUP, group([0.3, 0.001]))


def test_latency_and_bandwidth_are_the_evidence():
    said = passed("DD605", Source.GROUP, group([0.001, 0.001]))
    assert said.text == "all_reduce takes 4.0 ms, and moves 400 MiB/s over 8 MiB"
    assert [one.text for one in said.evidence] == [
        "all_reduce sum: 400 MiB/s with 8 MiB, 4.0 ms",
        "broadcast: 1.1 GiB/s with 8 MiB",
        "all_gather: 615 MiB/s with 8 MiB",
    ]


def test_one_rank_is_skipped():
    assert skipped("DD605", Source.GROUP, group([None])).reason == "needs at least two ranks"
