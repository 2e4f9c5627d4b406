"""Healthy hosts get no finding above info, whatever the launch."""

import pytest

from ddpdoctor import registry
from ddpdoctor.judge import judge
from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host

LAUNCHES = [
    ("plain", Launch()),
    ("plain", Launch(nnodes=2, master_addr="10.0.0.1")),
    ("8gpus", Launch(nproc=8, backend="nccl")),
    ("8gpus", Launch(nproc=8, backend="nccl", nnodes=2, master_addr="10.10.0.1")),
    ("8gpus", Launch(nproc=8, backend="gloo")),
    ("ib", Launch()),
    ("ib", Launch(nnodes=2, master_addr="10.0.0.1")),
    ("consumer", Launch(backend="nccl")),
]


@pytest.mark.parametrize(("name", "launch"), LAUNCHES)
def test_no_finding_above_info(name, launch):
    broken: list[str] = []
    verdicts = judge(Source.HOST, registry.select(Source.HOST), recorded_host(name, launch), broken.append)
    assert not broken
    loud = [finding for one in verdicts for finding in one.findings if finding.level is not Level.INFO]
    assert not loud, [f"{finding.code}: {finding.headline}" for finding in loud]
