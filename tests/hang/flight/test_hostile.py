"""Dumps come from elsewhere: whatever they hold, the answer is a sentence, and nothing of them is executed."""

import os
import pickle
import random

import pytest

from ddpdoctor.hang.flight import folder
from ddpdoctor.hang.flight.reading import read
from ddpdoctor.hang.flight.unpickle import Refused, plain
from tests.support.flight import dump, entry, ring, write_job


class Runs:
    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return os.system, (f"touch {self.proof}",)


def refused(tmp_path, said) -> str:
    file = tmp_path / "trace_rank_0"
    file.write_bytes(said if isinstance(said, bytes) else pickle.dumps(said))
    with pytest.raises(Refused) as why:
        read(file, 0)
    return str(why.value)


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    proof = tmp_path / "was-here"
    assert "posix.system" in refused(tmp_path, Runs(proof))
    assert not proof.exists()


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x80\x02}q\x00(", id="cut short"),
        pytest.param(b'{"entries": [', id="JSON cut short"),
        pytest.param(b"{" * 100_000, id="deep JSON"),
        pytest.param([1, 2], id="a list"),
        pytest.param({"entries": "many"}, id="entries that are a text"),
        pytest.param({"entries": [7]}, id="an entry that is a number"),
        pytest.param({"entries": [{}]}, id="an empty entry"),
        pytest.param({"entries": [entry(-5)]}, id="a negative number"),
        pytest.param({"entries": [entry(1 << 80)]}, id="a number beyond 64 bits"),
        pytest.param({"entries": [entry(1, process_group=())]}, id="no group"),
        pytest.param(
            {"entries": [], "pg_config": {"0": {"ranks": "__import__('os')"}}}, id="ranks that are code"
        ),
        pytest.param({"entries": [], "pg_config": {"0": {"ranks": "[" * 9999}}}, id="ranks too deep"),
        pytest.param({"entries": [], "pg_config": [3]}, id="groups that are a list"),
    ],
)
def test_what_is_no_dump_is_refused_in_a_sentence(tmp_path, said):
    assert "\n" not in refused(tmp_path, said)


@pytest.mark.slow
@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"\x80\x04\x96\xff\xff\xff\xff\xff\xff\xff\x0f.", id="an array of exabytes"),
        pytest.param(b"\x80\x02K\x01r\xff\xff\xff\x0f.", id="a memo of gigabytes"),
        pytest.param(b"\x80\x02}X\x07\0\0\0entries](" + b"}" * 9_000_000 + b"es.", id="nine million entries"),
    ],
)
def test_a_file_that_asks_for_much_memory_gets_little(tmp_path, monkeypatch, said):
    monkeypatch.setattr(folder, "MEMORY", 700 << 20)
    (tmp_path / "trace_rank_0").write_bytes(said)
    with pytest.raises(Refused, match="it requires more memory than a dump needs"):
        folder.read_folder(tmp_path)


@pytest.mark.slow
def test_a_file_that_takes_years_is_given_up_and_the_others_are_read(tmp_path, monkeypatch):
    """A key of tuples in tuples: to hash it takes 2 ** 60 steps."""
    monkeypatch.setattr(folder, "SECONDS", 1)
    place = write_job(tmp_path / "dumps", 3, lambda rank: ring(1, 4))
    (place / "nccl_trace_rank_1").write_bytes(b"\x80\x02})" + b"2\x86" * 60 + b"K\x01s.")
    dumps = folder.read_folder(place)
    assert sorted(dumps.ranks) == [0, 2]
    assert list(dumps.refused.values()) == ["it takes more than 1 s to read"]


def test_bytes_changed_at_random_end_in_a_dump_or_a_refusal():
    chance = random.Random(7)
    data = pickle.dumps(dump(ring(1, 3), {"0": range(2)}), protocol=2)
    for _ in range(2000):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            plain(bytes(changed[: chance.randint(1, len(changed))]))
        except Refused:
            pass


def test_one_bad_file_does_not_hide_the_others(tmp_path):
    place = write_job(tmp_path / "dumps", 3, lambda rank: ring(1, 4))
    (place / "nccl_trace_rank_1").write_bytes(b"garbage")
    dumps = folder.read_folder(place)
    assert sorted(dumps.ranks) == [0, 2]
    assert [file.name for file in dumps.refused] == ["nccl_trace_rank_1"]


def test_a_folder_without_dumps_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(Refused, match="no file name contains a rank"):
        folder.read_folder(tmp_path)
