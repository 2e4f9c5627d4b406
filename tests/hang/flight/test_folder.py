"""Where dumps lie, what their names tell, and which of several counts."""

import mmap
import os
import pickle
from pathlib import Path

import pytest

from ddpdoctor.hang.flight.folder import MEMORY, PLACES, place_in, read_folder
from ddpdoctor.hang.flight.reading import looks_like_dump, rank_of
from tests.support.flight import dump, ring, waiting, write_job


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("nccl_trace_rank_0", 0),
        ("comm_lib_trace_rank_1023", 1023),
        ("nccl_trace_host7_rank_12", 12),
        ("nccl_trace_rank_3_node-17.cluster", 3),
        ("fr_rank_5.json", 5),
        ("gpu4-node2_rank7.pickle", 7),
        ("fr3", 3),
        ("vm-4711_rank_2", 2),
        ("vm-4711.snapshot.json", None),
        ("notes.txt", None),
        ("rank_99999999999", None),
    ],
)
def test_the_rank_that_a_name_tells(name, rank):
    assert rank_of(Path(name)) == rank


def test_folders_of_several_hosts_are_one_job(tmp_path):
    for host, ranks in (("node0", (0, 1)), ("node1", (2, 3))):
        write_job(tmp_path / host, 4, lambda rank, ranks=ranks: ring(1, 3) if rank in ranks else None)
    assert sorted(read_folder(tmp_path).ranks) == [0, 1, 2, 3]


def test_what_the_variable_holds_is_a_place_too(tmp_path):
    write_job(tmp_path / "dumps", 3, lambda rank: ring(1, 3))
    (tmp_path / "dumps" / "other_rank_7").write_bytes(pickle.dumps(dump(ring(1, 3), {})))
    for variable in PLACES:
        place = place_in({variable: str(tmp_path / "dumps" / "nccl_trace_rank_")})
        assert sorted(read_folder(place).ranks) == [0, 1, 2]
    assert place_in({}) is None


def test_what_the_parent_has_mapped_is_no_memory_of_a_dump(tmp_path):
    """A torch for GPUs maps more than MEMORY before a dump is read."""
    large = dump(ring(1, 3), {}) | {"comment": "x" * (32 << 20)}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(large))
    with mmap.mmap(-1, 2 * MEMORY, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ):
        assert sorted(read_folder(tmp_path).ranks) == [0]


def test_of_two_dumps_of_one_rank_the_newer_counts(tmp_path):
    folder = write_job(tmp_path / "dumps", 2, lambda rank: ring(1, 3))
    stale = folder / "comm_lib_trace_rank_1"
    stale.write_bytes(pickle.dumps(dump([waiting(1)], {"0": range(2)})))
    os.utime(stale, (1_000_000_000, 1_000_000_000))
    found = read_folder(folder)
    assert not found.ranks[1].waits
    assert found.left_out == (
        "1 file left out, such as 'comm_lib_trace_rank_1': there is a newer one of rank 1",
    )


def test_dumps_are_told_from_a_jobs_output(tmp_path):
    for as_json in (False, True):
        folder = write_job(tmp_path / "dumps", 1, lambda rank: ring(1, 3), as_json=as_json)
        assert looks_like_dump(folder / "nccl_trace_rank_0")
    for text in ("", '{"message": "step 1"}\n', "rank 0: entries read\n"):
        (tmp_path / "job_0").write_text(text)
        assert not looks_like_dump(tmp_path / "job_0")


def test_the_recorder_of_torchcomms(tmp_path):
    """Its format has a version of the library, threads, and no name of a backend before an operation."""

    def held(rank):
        last = ring(1, 3, profiling_name="all_reduce", thread_id="140", thread_name="python")
        return [*last, waiting(4, profiling_name="all_reduce")] if rank else last

    write_job(tmp_path, 2, held, as_json=True)
    for file in tmp_path.iterdir():
        file.write_text(file.read_text().replace('"version"', '"comm_lib_version": "2.27", "version"', 1))
        file.rename(tmp_path / f"torchcomm_fr_rank_{file.name[-1]}.json")
    dumps = read_folder(tmp_path).ranks
    assert sorted(dumps) == [0, 1]
