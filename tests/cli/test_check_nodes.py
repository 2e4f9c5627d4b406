"""A job of two nodes: two network namespaces on this machine, joined by a veth pair."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import SECONDS, environment

pytestmark = pytest.mark.slow

PORT = "20500"
ADDRESSES = ("10.213.0.1", "10.213.0.2")


@pytest.fixture
def nodes() -> Iterator[tuple[str, str]]:
    """The names of two namespaces that reach each other."""
    if shutil.which("ip") is None:
        pytest.skip("needs the ip command")
    names = (f"ddpdoctor-a{os.getpid()}", f"ddpdoctor-b{os.getpid()}")
    links = (f"dda{os.getpid()}", f"ddb{os.getpid()}")
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", links[0], "type", "veth", "peer", "name", links[1])
        for name, link, address in zip(names, links, ADDRESSES, strict=True):
            _ip("link", "set", link, "netns", name, "name", "eth0")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                _ip("-n", name, "link", "set", interface, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], capture_output=True, check=True)


def start(namespace: str, rank: int, folder: Path) -> "subprocess.Popen[str]":
    options = [
        "--nnodes",
        "2",
        "--node-rank",
        str(rank),
        "--master-addr",
        ADDRESSES[0],
        "--master-port",
        PORT,
    ]
    command = [
        *(
            "ip",
            "netns",
            "exec",
            namespace,
            sys.executable,
            "-m",
            "ddpdoctor",
            "check",
            "--nproc",
            "2",
            *options,
        ),
        *("--select", "group", "--format", "json", "--quiet", "--timeout", "100"),
    ]
    env = environment({"GLOO_SOCKET_IFNAME": "eth0"})
    return subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.root
def test_both_nodes_judge_all_four_ranks(nodes: tuple[str, str], tmp_path: Path) -> None:
    checks = [start(name, rank, tmp_path) for rank, name in enumerate(nodes)]
    said = [check.communicate(timeout=SECONDS) for check in checks]
    for check, (out, err) in zip(checks, said, strict=True):
        assert check.returncode == 0, out + err
        report = json.loads(out)
        lines = {line["code"]: line for line in report["checks"]}
        assert report["run"]["nnodes"] == 2
        assert lines["DD004"]["outcome"] == "pass"
        assert lines["DD004"]["text"] == f"all 4 ranks met on port {PORT}"
        assert lines["DD206"]["outcome"] == "pass"
        assert "4 replicas" in lines["DD206"]["text"]


@pytest.mark.root
def test_a_node_that_never_comes_is_found(nodes: tuple[str, str], tmp_path: Path) -> None:
    env = environment({"GLOO_SOCKET_IFNAME": "eth0"})
    options = ["--nnodes", "2", "--node-rank", "1", "--master-addr", ADDRESSES[0], "--master-port", PORT]
    command = [
        "ip",
        "netns",
        "exec",
        nodes[1],
        sys.executable,
        "-m",
        "ddpdoctor",
        "check",
        "--nproc",
        "2",
        *options,
    ]
    command += ["--select", "group", "--format", "json", "--quiet", "--timeout", "20"]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    report = json.loads(done.stdout)
    assert [finding["code"] for finding in report["findings"]] == ["DD004"]
    assert done.returncode == 1
