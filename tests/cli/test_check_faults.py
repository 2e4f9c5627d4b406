"""Faults made real, each found by the command with its code and nothing else above info."""

import resource
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import faults
from tests.support.command import Done, check, free_port

pytestmark = pytest.mark.slow


def only(done: Done, code: str) -> dict[str, object]:
    """The one finding above info, where the exit status says so."""
    assert done.err == ""
    assert done.codes() == {code}, done.out
    assert done.status == done.report["exit_status"] == 1
    (finding,) = (finding for finding in done.report["findings"] if finding["code"] == code)
    return dict(finding)


def test_a_listener_on_the_master_port(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("", free_port()))
        listener.listen()
        port = str(listener.getsockname()[1])
        finding = only(check("--nproc", "2", "--master-port", port, cwd=tmp_path), "DD002")
    assert "pid" in str(finding["headline"])


def test_a_master_address_that_does_not_resolve(tmp_path: Path) -> None:
    only(check("--nproc", "2", cwd=tmp_path, env={"MASTER_ADDR": "nosuch.invalid"}), "DD004")


def test_variables_beside_which_the_group_works(tmp_path: Path) -> None:
    """In one launch: an exported rank, a misspelt variable and one that slows down."""
    variables = {"RANK": "3", "NCCL_SOKET_IFNAME": "eth0", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    done = check("--nproc", "2", cwd=tmp_path, env=variables)
    assert (done.status, done.err) == (1, "")
    assert done.codes() == {"DD001", "DD009"}, done.out
    assert [finding["code"] for finding in done.report["findings"]].count("DD009") == 2


def test_a_number_of_ranks_that_another_launch_exported(tmp_path: Path) -> None:
    only(check("--nproc", "2", "--select", "host", cwd=tmp_path, env={"WORLD_SIZE": "16"}), "DD001")


def test_an_interface_that_is_not_there_and_no_secret_in_the_run_folder_that_is_kept(tmp_path: Path) -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    env = {"GLOO_SOCKET_IFNAME": secret, "TMPDIR": str(tmp_path)}
    done = check("--nproc", "2", cwd=tmp_path, env=env)
    only(done, "DD702")
    kept = Path(done.report["run"]["folder"])
    files = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    assert any(b"***" in text for text in files.values()), "gloo quotes the variable"
    assert [path for path, text in files.items() if secret.encode() in text] == []


def test_an_open_files_limit_of_64(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    only(check("--nproc", "2", cwd=tmp_path, preexec_fn=limit), "DD015")


def test_a_backend_that_is_not_there(tmp_path: Path) -> None:
    only(check("--nproc", "2", "--backend", "mpi", cwd=tmp_path), "DD013")


@pytest.fixture
def read_only_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_checkpoint_folder_that_is_read_only(read_only_folder: Path, tmp_path: Path) -> None:
    only(check("--nproc", "2", "--checkpoint-dir", str(read_only_folder), cwd=tmp_path), "DD019")


@pytest.mark.parametrize(
    ("code", "body", "says"),
    [
        ("DD304", faults.RAISING_ALL_REDUCE, "rank 1 failed with ValueError 'image 17 is broken'"),
        ("DD304", faults.EXITING_IN_ALL_REDUCE, "rank 1 ended with exit status 7"),
        ("DD012", faults.KILLED_IN_ALL_REDUCE, "SIGKILL"),
        ("DD313", faults.CORRUPTED_ALL_REDUCE, "all_reduce"),
    ],
)
def test_a_rank(code: str, body: str, says: str, tmp_path: Path) -> None:
    assert_rank_1_is_named(tmp_path, body, code, says)


def test_a_rank_that_never_joins(tmp_path: Path) -> None:
    """Two ways to stay away, at once: the other rank does nothing but wait."""
    bodies = (faults.SPINNING_ALL_REDUCE, faults.STOPPED_IN_ALL_REDUCE)
    with ThreadPoolExecutor() as pool:
        checks = [
            pool.submit(
                assert_rank_1_is_named,
                tmp_path / str(number),
                body,
                "DD301",
                "rank 1 did not join all_reduce",
            )
            for number, body in enumerate(bodies)
        ]
    for done in checks:
        done.result()


def assert_rank_1_is_named(folder: Path, body: str, code: str, says: str) -> None:
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    env = {**faults.break_torch(folder / "site", body), "TMPDIR": str(temporary)}
    done = check("--nproc", "2", cwd=folder, env=env)
    finding = only(done, code)
    assert says in str(finding["headline"])
    assert finding["ranks"] == [1]
    assert [str(left) for left in temporary.iterdir()] == [done.report["run"]["folder"]]


def test_a_rank_whose_weights_differ(tmp_path: Path) -> None:
    env = faults.break_torch(tmp_path / "site", faults.NO_WEIGHT_SYNC, faults.UTILS)
    finding = only(check("--nproc", "2", cwd=tmp_path, env=env), "DD206")
    assert "differ" in str(finding["headline"])
