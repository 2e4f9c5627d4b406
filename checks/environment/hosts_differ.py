from collections.abc import Iterator, Mapping

from ddpdoctor.check import Check, Finding, Judgement, Kind, Passed
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.nodes.facts import NodeFacts
from ddpdoctor.text import listing, quote

_OF_ONE_HOST = ("IFNAME", "HCA", "NET_DEVICES", "FILE", "GID_INDEX", "HOSTID")
"""In the names of variables that may differ: interfaces and paths are those of the host."""
_ABSENT = "not set"


class HostsDiffer(Check):
    """The hosts of a job differ in what they should share: the script, settings of NCCL, the number of GPUs.

    What it finds:
        A script, or a file among its arguments, whose checksum is not the same on every host; settings of NCCL, gloo
        and torch.distributed that differ between the hosts' environments; and hosts with more or fewer GPUs or NUMA
        nodes. Interfaces, adapters and paths may differ.

    Why it matters:
        Every host runs its own copy. A changed line or configuration on one of them has ranks call other collectives,
        train another model, or use another learning rate. NCCL's settings have to agree on both sides of a
        connection: a protocol, an algorithm or a transport that one side has switched off hangs.

    Example:
        A script that was edited on the first host and not copied to the others:
            node0$ sha256sum train.py     # 3f0a...
            node1$ sha256sum train.py     # 91c4...

    Fix:
        Run one copy, on a shared file system or from one image; set variables where all hosts get them:
            sbatch --export ALL,NCCL_ALGO=Ring train.sbatch
    """

    code = "DD022"
    title = "the hosts have the same script and settings"

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        self.require(len(ranks.nodes) >= 2, "the job has one host")
        nodes = ranks.nodes
        differences = (self._files, self._variables, self._gpus, self._numa_nodes)
        return [finding for differ in differences for finding in differ(nodes)] or Passed(
            f"{len(nodes)} hosts have the same settings{_same_files(nodes)}"
        )

    def _files(self, nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
        for path, by_host in _differing({node.host: node.files for node in nodes}):
            if _ABSENT in by_host.values():
                continue  # a path of one host, or a host on which it is found in another way
            yield self.warn(_differs(quote(path), by_host), about=Kind.PATH.of(path))

    def _variables(self, nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
        for name, by_host in _differing({node.host: node.variables for node in nodes}):
            if not any(part in name for part in _OF_ONE_HOST):
                yield self.warn(_differs(name, by_host), about=Kind.VARIABLE.of(name))

    def _gpus(self, nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
        counts = {node.host: node.gpus for node in nodes}
        if len({*counts.values()}) > 1:
            yield self.warn(
                _differs("the number of visible GPUs", counts),
                why="torchrun starts --nproc-per-node ranks on each host; where a GPU is missing, or hidden by "
                "CUDA_VISIBLE_DEVICES, two ranks share one or a rank has none.",
                fix="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES     # on every host",
            )

    def _numa_nodes(self, nodes: tuple[NodeFacts, ...]) -> Iterator[Finding]:
        counts = {node.host: node.numa_nodes for node in nodes}
        if len({*counts.values()} - {0}) > 1:
            yield self.info(
                _differs("the number of NUMA nodes", counts),
                why="The hosts are of different kinds, or their BIOS or virtual machine settings differ (NPS, "
                "sub-NUMA clustering). Ranks may then be placed farther from their GPUs and slow down every step.",
                fix="lscpu | grep NUMA; nvidia-smi topo -m     # on every host",
            )


def _differing(values: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each name whose value is not the same on every host, with its value on each."""
    for name in dict.fromkeys(name for of_host in values.values() for name in of_host):
        by_host = {host: of_host.get(name, _ABSENT) for host, of_host in values.items()}
        if len({*by_host.values()}) > 1:
            yield name, by_host


def _differs(what: str, by_host: Mapping[str, str | int]) -> str:
    """``MASTER_PORT differs between hosts: '29500' on node0, node2; not set on node1``."""
    hosts: dict[str | int, list[str]] = {}
    for host, value in by_host.items():
        hosts.setdefault(value, []).append(host)
    groups = "; ".join(f"{_shown(value)} on {listing(on)}" for value, on in hosts.items())
    return f"{what} differs between hosts: {groups}"


def _shown(value: str | int) -> str:
    return quote(value) if isinstance(value, str) and value != _ABSENT else str(value)


def _same_files(nodes: tuple[NodeFacts, ...]) -> str:
    files = [path for path in nodes[0].files if all(path in node.files for node in nodes)]
    return f" and the same {listing(files)}" if files else ""
