from collections.abc import Iterable, Mapping

from ddpdoctor.check import Check, Finding, Judgement, Passed
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.nodes.facts import NodeFacts
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import by_value

DECISIVE = ("torch", "NCCL")
"""What has to be the same for ranks to communicate."""


class VersionsDiffer(Check):
    """Ranks run different versions of torch, NCCL, CUDA or Python.

    What it finds:
        A version that is not the same on every rank, with the ranks and hosts that have each. torch and NCCL
        are failures; CUDA and Python are warnings.

    Why it matters:
        Ranks communicate in the protocol of their torch and NCCL, and compute with the kernels of their CUDA. Different
        versions hang while connecting, fail with "invalid usage", or give different results.

    Example:
        One node whose image was not updated:
            node1$ python -c "import torch; print(torch.__version__)"     # 2.13.0
            node2$ python -c "import torch; print(torch.__version__)"     # 2.9.1

    Fix:
        Install the same versions on every node, for instance from one container image or one lock file:
            pip install -c constraints.txt torch
    """

    code = "DD014"
    title = "every rank runs the same versions"
    measurements = ("variables",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        if ranks.broken and (finding := self._on_hosts(ranks.nodes)):
            return finding
        values = ranks.values("variables")
        self.require(len(values) != 1, "needs at least two ranks")
        versions = {rank: value["versions"] for rank, value in values.items()}
        names = [name for name in versions[0] if len({known[name] for known in versions.values()}) > 1]
        if names:
            hosts = {rank: value["host"] for rank, value in values.items()}
            return self._differ(names, versions, hosts)
        present = {name: version for name, version in versions[0].items() if version}
        return Passed(f"every rank runs {_listed(present)}")

    def _on_hosts(self, nodes: Iterable[NodeFacts]) -> Finding | None:
        """What is installed on the hosts of a group whose ranks could not tell."""
        versions: dict[int, Mapping[str, str | None]] = {rank: n.versions for n in nodes for rank in n.ranks}
        names = [name for name in DECISIVE if len({known.get(name) for known in versions.values()}) > 1]
        if not names:
            return None
        return self._differ(names, versions, {rank: n.host for n in nodes for rank in n.ranks})

    def _differ(
        self, names: list[str], versions: Mapping[int, Mapping[str, str | None]], hosts: Mapping[int, str]
    ) -> Finding:
        report = self.fail if any(name in DECISIVE for name in names) else self.warn
        by_version = by_value({rank: known[names[0]] for rank, known in versions.items()})
        states = {rank: f"{hosts[rank]}: {_listed(known)}" for rank, known in versions.items()}
        shown = (f"{version or 'none'} on {ranks_phrase(ranks)}" for version, ranks in by_version.items())
        return report(
            f"{names[0]} differs between ranks: {', '.join(shown)}",
            fix="install the same versions on every host, from one image or one constraints file: "
            f"pip install torch=={(versions[0]['torch'] or '').partition('+')[0]}",
            ranks=tuple(rank for ranks in list(by_version.values())[1:] for rank in ranks),
            evidence=states,
        )


def _listed(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {version or 'none'}" for name, version in versions.items())
