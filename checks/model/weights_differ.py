from collections.abc import Mapping
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.group.answers import require_right_answers
from ddpdoctor.group.record import GroupRecord
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed, Skipped
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace


class WeightsDiffer(Check):
    """Replicas that have to be equal are not.

    What it finds:
        Ranks whose weights differ from rank 0's, bit by bit: the first tensor, the first element and both values.
        In the live group, replicas built from different seeds, after DDP's constructor and after optimizer steps
        with different data; in a training run, the weights it ends with.

    Why it matters:
        DDP averages gradients and never weights. Replicas that differ once stay different, each gradient is taken
        at another point, and what rank 0 saves is a model that no one trained. No error is raised, and the loss
        of each rank looks sound.

    Example:
        A layer is re-initialised after the wrap, on every rank from its own random numbers:
            model = DistributedDataParallel(model)
            model.module.head.reset_parameters()

    Fix:
        Change weights before the wrap, which gives every rank those of rank 0; or after it on all ranks alike, and
        broadcast what was drawn at random. Where nothing of the kind was done, suspect the hardware.
    """

    code = "DD206"
    name = "weights-differ"
    family = Family.MODEL
    title = "every rank has the same weights"
    measurements = ("weights",)

    def examine_group(self, ranks: GroupRecord) -> Judgement:
        require_right_answers(ranks)
        values = ranks.values("weights")
        if len(values) == 1:
            return Skipped("one rank has no other to differ from")
        unequal = {rank: value["difference"] for rank, value in values.items() if value["difference"]}
        if unequal:
            return [self._differ_in_group(unequal)]
        return Passed(
            f"DDP makes {len(values)} replicas from different seeds equal to the bit "
            f"({plural(values[0]['tensors'], 'tensor')}), and they stay so"
        )

    def examine_run(self, trace: Trace) -> Judgement:
        digests, differences = trace.values("weights"), trace.values("difference")
        if len(digests) == 1:
            return Skipped("one rank has no other to differ from")
        unequal = {rank: differences[rank] for rank, digest in digests.items() if digest != digests[0]}
        if unequal:
            return [self._differ(unequal, digests)]
        return Passed(f"after the training run, the weights of {ranks_phrase(digests)} are equal to the bit")

    def _differ_in_group(self, unequal: Mapping[int, Mapping[str, Any]]) -> Finding:
        first = next(iter(unequal.values()))
        return self.fail(
            f"the weights of {ranks_phrase(unequal)} differ from rank 0's {first['when']}: "
            f"{first['tensor']}[{first['element']}] by {abs(first['own'] - first['rank_0']):.3g}",
            why="DDP sends rank 0's weights in its constructor and averages gradients in every step. Here replicas of "
            "a model of ddpdoctor's own came out unequal, so every rank would train a model of its own.",
            fix="see whether a package replaces functions of torch.distributed or of DistributedDataParallel; or "
            "reinstall torch: pip install --force-reinstall torch",
            ranks=tuple(unequal),
            evidence=tuple(
                Evidence(f"{_shown(one)} ({one['when']})", (rank,)) for rank, one in unequal.items()
            ),
        )

    def _differ(self, unequal: Mapping[int, Mapping[str, Any] | None], digests: Mapping[int, str]) -> Finding:
        return self.fail(
            f"the weights of {ranks_phrase(unequal)} differ from rank 0's after the training run",
            why="Every rank started from rank 0's weights and took steps with the same averaged gradients, so "
            "they have to be equal to the bit. A gradient or a broadcast did not arrive as it was sent, or a rank "
            "computed another result from equal numbers.",
            fix="ddpdoctor check --select group    # shows which collective returns a wrong result",
            ranks=tuple(unequal),
            evidence=(
                *(Evidence(_shown(one), (rank,)) for rank, one in unequal.items()),
                *(
                    Evidence(
                        f"weights {digest[:12]}", tuple(r for r, own in digests.items() if own == digest)
                    )
                    for digest in dict.fromkeys(digests.values())
                ),
            ),
        )


def _shown(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "the broadcast of rank 0's weights shows no difference, and their checksums do"
    return f"{one['tensor']}[{one['element']}] is {one['own']!r}, and {one['rank_0']!r} on rank 0"
