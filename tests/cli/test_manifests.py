"""The manifests of docs/hosts.md: one launch, the same in each pod."""

from dataclasses import replace
from pathlib import Path

import yaml

from ddpdoctor.cli.launch_from_options import launch_of
from ddpdoctor.cli.option import NodeCount
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.launch import UNNUMBERED
from tests.support.hosts import recorded_host

PAGE = Path(__file__).parents[2] / "docs" / "hosts.md"


def manifests() -> dict[str, dict]:
    """The first of each kind."""
    blocks = [block.partition("```")[0] for block in PAGE.read_text().split("```yaml\n")[1:]]
    objects = [each for block in blocks for each in yaml.safe_load_all(block)]
    return {each["kind"]: each for each in reversed(objects) if "kind" in each}


def test_each_pod_of_the_job_finds_the_first_by_its_name() -> None:
    service, job = manifests()["Service"], manifests()["Job"]
    pods = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pods["subdomain"] == service["metadata"]["name"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"]


def test_the_pods_are_numbered_without_a_word() -> None:
    job = manifests()["Job"]
    name, (container,) = job["metadata"]["name"], job["spec"]["template"]["spec"]["containers"]
    *command, script = container["command"]
    assert (command[:2], script) == (["ddpdoctor", "check"], "train.py")
    given = dict(zip(command[2::2], command[3::2], strict=True))
    assert given.keys() == {"--nnodes", "--master-addr"}
    first = f"{name}-0.{job['spec']['template']['spec']['subdomain']}"
    assert (int(given["--nnodes"]), given["--master-addr"]) == (job["spec"]["completions"], first)
    here = recorded_host().usable_interfaces[0].addresses[0]
    options = replace(CheckOptions(), nodes=NodeCount(2, 2), master_addr=first, nproc=2)
    for address, number in ((here, 0), ("192.0.2.9", UNNUMBERED)):
        host = recorded_host(resolve={first: [address]})
        assert launch_of(options, host).node_rank == number
