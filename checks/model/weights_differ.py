from collections.abc import Mapping
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.group.answers import require_right_answers
from ddpdoctor.group.record import GroupRecord
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace


class WeightsDiffer(Check):
    """The replicas of one model hold different weights.

    What it finds:
        A parameter or buffer that is not bit for bit the same on every rank, right after the wrap or after
        optimizer steps: the first tensor and element, the ranks, and how far apart they are.

    Why it matters:
        DDP sends rank 0's weights once, in its constructor, and after that averages gradients only. Replicas
        that differ once differ for good: every rank trains its own model with another model's gradients, the
        checkpoint holds rank 0's, and no error is raised.

    Example:
        Weights loaded on one rank after the wrap:
            model = DistributedDataParallel(model)
            if rank == 0:
                model.module.load_state_dict(torch.load("model.pt"))     # the other ranks keep theirs

    Fix:
        Load before the wrap, which then sends rank 0's weights to all; or load on every rank:
            state = torch.load("model.pt", map_location="cpu")
            model.module.load_state_dict(state)
    """

    code = "DD206"
    name = "weights-differ"
    family = Family.MODEL
    title = "replicas hold the same weights"
    measurements = ("weights",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        require_right_answers(ranks)
        values = ranks.values("weights")
        if len(values) == 1:
            return Skipped("one rank has no other replica")
        differences = {rank: value["difference"] for rank, value in values.items() if value["difference"]}
        if differences:
            return [self._differ(differences)]
        tensors = plural(values[0]["tensors"], "tensor")
        return Passed(
            f"DDP made {len(values)} replicas from different seeds equal, and they stayed so ({tensors}, bit for bit)"
        )

    def examine_run(self, trace: Trace) -> Judgement:
        checksums, found = trace.values("weights"), trace.values("difference")
        if len(checksums) == 1:
            return Skipped("one rank has no other replica")
        differences = {rank: {**one, "when": "after the training run"} for rank, one in found.items() if one}
        if differences:
            return [self._differ(differences)]
        if len(set(checksums.values())) > 1:
            return [self._hidden(checksums)]
        return Passed(f"the trainer's {len(checksums)} replicas ended bit for bit equal")

    def _hidden(self, checksums: Mapping[int, str]) -> Finding:
        odd = tuple(rank for rank, one in checksums.items() if one != checksums[0])
        return self.fail(
            f"the weights of {ranks_phrase(odd)} differ from rank 0's, and a broadcast of them does not show it",
            why="Each rank took a checksum of its weights and compared them with what rank 0 broadcast. The "
            "checksums differ and the comparison saw nothing, so the broadcast did not bring rank 0's weights.",
            fix="ddpdoctor check --select group    # shows which collective returns a wrong result",
            ranks=odd,
            evidence=tuple(Evidence(f"checksum {one[:12]}", (rank,)) for rank, one in checksums.items()),
        )

    def _differ(self, differences: Mapping[int, Mapping[str, Any]]) -> Finding:
        first = next(iter(differences.values()))
        return self.fail(
            f"the weights of {ranks_phrase(differences)} differ from rank 0's {first['when']}: {_element(first)}",
            why="DDP sends rank 0's weights in its constructor and averages gradients in every step. Here it did "
            "not, with a model of ddpdoctor's own, so every rank would train a model of its own.",
            fix="see whether a package replaces functions of torch.distributed or of DistributedDataParallel, and "
            "reinstall torch: pip install --force-reinstall torch",
            ranks=tuple(differences),
            evidence=tuple(
                Evidence(
                    f"{one['tensor']} element {one['element']}: {one['own']:.9g}, "
                    f"on rank 0 {one['rank_0']:.9g} ({one['when']})",
                    (rank,),
                )
                for rank, one in differences.items()
            ),
        )


def _element(one: Mapping[str, Any]) -> str:
    apart = abs(one["own"] - one["rank_0"])
    return f"{one['tensor']} element {one['element']} by {apart:.3g}"
