"""A job of two nodes: two hosts in namespaces on this machine, of which each runs the command."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.command import SECONDS
from tests.support.namespaces import HostsBed

pytestmark = [pytest.mark.slow, pytest.mark.root]

PORT = 20500
OVERLAPS = """
import os, torch, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
size, rank = (int(os.environ[name]) for name in ("LOCAL_WORLD_SIZE", "LOCAL_RANK"))
sampler = DistributedSampler(data, size, rank)  # by the ranks of its host alone
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=8, sampler=sampler):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
"""


def said(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def test_two_hosts_end_in_one_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(OVERLAPS)
    words = ["--select", "host,group,run", "--format", "json", "--quiet", "--timeout", "200", "train.py"]
    with HostsBed(2) as bed:
        commands = [
            bed.ddpdoctor(node, ["check", *bed.launch(node, PORT), *words], tmp_path) for node in (0, 1)
        ]
        (status, out, err), (status_of_1, out_of_1, err_of_1) = map(said, commands)
        assert [bed.pids(node) for node in (0, 1)] == [[], []]
    assert (status, status_of_1) == (1, 1), out + err + err_of_1
    assert out_of_1 == ""
    assert err_of_1.endswith("ddpdoctor: the report of all hosts is on node0, the host of rank 0\n")
    report = json.loads(out)
    assert (report["run"]["nnodes"], report["run"]["nproc"]) == (2, 2)
    lines = {line["code"]: line for line in report["checks"]}
    assert lines["DD004"]["outcome"] == "pass"
    assert lines["DD206"]["text"].count("4 replicas") == 1
    assert "DD105" in {finding["code"] for finding in report["findings"] if finding["level"] == "fail"}
    assert "ranks 0-1 on node0, ranks 2-3 on node1" in report["notes"]


def test_a_node_that_never_comes_is_named(tmp_path: Path) -> None:
    words = ["--select", "group", "--format", "json", "--quiet", "--timeout", "8"]
    with HostsBed(3) as bed:
        commands = [
            bed.ddpdoctor(node, ["check", *bed.launch(node, PORT), *words], tmp_path) for node in (0, 1)
        ]
        (status, out, err), (status_of_1, _, _) = map(said, commands)
    assert (status, status_of_1) == (1, 1), out + err
    (finding,) = json.loads(out)["findings"]
    assert (finding["code"], finding["headline"]) == ("DD004", "node 2 did not join (ranks 4-5)")


def test_without_node_0_each_host_says_so(tmp_path: Path) -> None:
    words = ["--select", "group", "--format", "json", "--quiet", "--timeout", "5"]
    with HostsBed(2) as bed:
        status, out, err = said(bed.ddpdoctor(1, ["check", *bed.launch(1, PORT), *words], tmp_path))
    assert status == 1, out + err
    (finding,) = json.loads(out)["findings"]
    assert finding["code"] == "DD004"
    assert finding["headline"].startswith(f"no answer of node 0 at {bed.addresses[0]} port {PORT}: ")
