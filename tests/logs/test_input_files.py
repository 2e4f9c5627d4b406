"""What is opened: packed files, and the ranks that the names of files tell."""

import bz2
import gzip
import io
import random

import pytest

from ddpdoctor.logs.input_files import UnreadableInput, streams


def ranks(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("step 1\n")
    return [one.rank for one in streams([str(folder)])]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["rank0.log", "rank1.log"], [0, 1]),
        (["train_rank_03.out", "train_rank_11.out"], [3, 11]),
        (["std_log_process_00.txt", "std_log_process_07.txt"], [0, 7]),
        (["rank_2.log", "torchrun.log", "rank_5.log"], [2, 5, None]),
    ],
)
def test_names_that_tell_the_rank(tmp_path, names, expected):
    assert sorted(ranks(tmp_path / "logs", *names), key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    "names",
    [
        ["rank0.log"],
        ["node_rank_0.log", "node_rank_1.log"],
        ["frank1.log", "frank2.log"],
        ["slurm-5_0.out", "slurm-5_1.out"],
    ],
)
def test_names_that_do_not(tmp_path, names):
    assert set(ranks(tmp_path / "logs", *names)) == {None}


def test_a_file_that_bzip2_packed(tmp_path):
    (tmp_path / "job.log.bz2").write_bytes(bz2.compress(b"step 1\n"))
    (one,) = streams([str(tmp_path / "job.log.bz2")])
    assert b"".join(one.chunks) == b"step 1\n"


def test_a_file_that_another_program_packed_is_no_output(tmp_path):
    (tmp_path / "job.log.zst").write_bytes(b"\x28\xb5\x2f\xfd" + random.Random(0).randbytes(4000))
    with pytest.raises(UnreadableInput, match="binary"):
        streams([str(tmp_path / "job.log.zst")])


def test_what_is_packed_in_a_pipe(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"step 1\n"))))
    (one,) = streams(["-"])
    assert b"".join(one.chunks) == b"step 1\n"


def test_what_is_binary_in_a_pipe(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\x28\xb5\x2f\xfd" + bytes(range(32)) * 9)))
    (one,) = streams(["-"])
    with pytest.raises(UnreadableInput, match="'stdin' is a binary file"):
        next(iter(one.chunks))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_what_powershell_wrote(tmp_path, encoding):
    bom = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "job.log").write_bytes(f"{bom}step é\r\n".encode(encoding))
    (one,) = streams([str(tmp_path / "job.log")])
    assert b"".join(one.chunks).decode().strip("\ufeff") == "step é\r\n"


def test_a_host_that_crashed_leaves_zeros_at_the_end(tmp_path):
    (tmp_path / "job.log").write_bytes(b"step 1\n" + bytes(5000))
    assert len(streams([str(tmp_path / "job.log")])) == 1


@pytest.mark.parametrize("text", ["é" * 50, "训练" * 50, "\x1b[31m\x1b[0m\b\b" * 50])
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_any_text_is_an_output(tmp_path, text, encoding):
    (tmp_path / "job.log").write_bytes(text.encode(encoding))
    assert len(streams([str(tmp_path / "job.log")])) == 1
