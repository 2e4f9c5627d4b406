from collections.abc import Mapping

from ddpdoctor.check import Check
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.model import Evidence, Finding, Judgement, Passed, Skipped
from ddpdoctor.text import ranks_phrase

DECISIVE = ("torch", "NCCL")
"""What must be the same for ranks to understand each other."""


class VersionsDiffer(Check):
    """Ranks run different versions of torch, NCCL, CUDA or Python.

    What it finds:
        A version that is not the same on every rank, with the ranks and hosts that have each. torch and NCCL
        are failures; CUDA and Python are warnings.

    Why it matters:
        Ranks speak to each other in the protocol of their torch and NCCL. Different ones hang while they connect,
        or end with "invalid usage", or reduce in different orders so that results cannot be repeated.

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
        values = ranks.values("variables")
        if len(values) == 1:
            return Skipped("needs at least two ranks")
        versions = {rank: value["versions"] for rank, value in values.items()}
        names = [n for n in versions[0] if len({version[n] for version in versions.values()}) > 1]
        if names:
            hosts = {rank: value["host"] for rank, value in values.items()}
            return self._differ(names, versions, hosts)
        present = (f"{name} {version}" for name, version in versions[0].items() if version)
        return Passed(f"every rank runs {', '.join(present)}")

    def _differ(
        self, names: list[str], versions: Mapping[int, Mapping[str, str | None]], hosts: Mapping[int, str]
    ) -> Finding:
        first = names[0]
        say = self.fail if any(name in DECISIVE for name in names) else self.warn
        states = _group({rank: version[first] for rank, version in versions.items()})
        return say(
            f"{first} differs between ranks: "
            + ", ".join(f"{version or 'none'} on {ranks_phrase(at)}" for version, at in states.items()),
            why="Ranks speak to each other in the protocol of their torch and NCCL, and compute with the kernels of "
            "their CUDA. Different versions hang while connecting, fail, or give results that differ.",
            fix="install the same versions on every host, from one image or one constraints file: "
            f"pip install torch=={(versions[0]['torch'] or '').partition('+')[0]}",
            ranks=tuple(rank for at in list(states.values())[1:] for rank in at),
            evidence=tuple(_evidence(versions, hosts)),
        )


def _group(versions: Mapping[int, str | None]) -> dict[str | None, list[int]]:
    states: dict[str | None, list[int]] = {}
    for rank, version in versions.items():
        states.setdefault(version, []).append(rank)
    return states


def _evidence(versions: Mapping[int, Mapping[str, str | None]], hosts: Mapping[int, str]) -> list[Evidence]:
    states: dict[str, list[int]] = {}
    for rank, one in versions.items():
        line = ", ".join(f"{name} {version or 'none'}" for name, version in one.items())
        states.setdefault(f"{hosts[rank]}: {line}", []).append(rank)
    return [Evidence(line, tuple(at)) for line, at in states.items()]
