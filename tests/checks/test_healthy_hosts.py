"""Healthy hosts get no finding above info, whatever the launch."""

import pytest

from ddpdoctor import registry
from ddpdoctor.judge import judge
from ddpdoctor.model import Level, Source
from ddpdoctor.plan import Plan
from tests.support.hosts import recorded_host

LAUNCHES = [
    ("plain", Plan()),
    ("plain", Plan(nnodes=2, master_addr="10.0.0.1")),
    ("8gpus", Plan(nproc=8, backend="nccl")),
    ("8gpus", Plan(nproc=8, backend="nccl", nnodes=2, master_addr="10.10.0.1")),
    ("8gpus", Plan(nproc=8, backend="gloo")),
    ("ib", Plan()),
    ("ib", Plan(nnodes=2, master_addr="10.0.0.1")),
    ("consumer", Plan(backend="nccl")),
]


@pytest.mark.parametrize(("name", "plan"), LAUNCHES)
def test_no_finding_above_info(name, plan):
    broken: list[str] = []
    verdicts = judge(Source.HOST, registry.select(Source.HOST), recorded_host(name, plan), broken.append)
    assert not broken
    loud = [finding for one in verdicts for finding in one.findings if finding.level is not Level.INFO]
    assert not loud, [f"{finding.code}: {finding.headline}" for finding in loud]
