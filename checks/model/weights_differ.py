from collections.abc import Mapping
from typing import Any

from ddpdoctor.check import Check
from ddpdoctor.model import Evidence, Family, Finding, Judgement, Passed
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace


class WeightsDiffer(Check):
    """Replicas that have to be equal are not.

    What it finds:
        Ranks whose weights differ from rank 0's, bit by bit: the first tensor, the first element and both values.

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

    def examine_run(self, trace: Trace) -> Judgement:
        digests, differences = trace.values("weights"), trace.values("difference")
        unequal = {rank: differences[rank] for rank, digest in digests.items() if digest != digests[0]}
        if unequal:
            return [self._differ(unequal, digests)]
        return Passed(f"after the training run, the weights of {ranks_phrase(digests)} are equal to the bit")

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
