import math

from ddpdoctor.check import Check, Judgement, Passed
from ddpdoctor.trace import Trace

_WEAKEST_FALL = 0.8
"""The last loss as a share of the first, at most. The bundled trainer falls to 0.65 and less on 1 to 8 ranks."""


class LossNotFalling(Check):
    """The loss of the bundled trainer did not fall.

    What it finds:
        The bundled trainer, a small language model on a text that every Python carries, whose loss falls from
        5.7 to below 3.7 within 16 steps, whatever the number of ranks. Here it did not, or became NaN. Runs
        of other scripts are not judged: their loss may have every reason to stay.

    Why it matters:
        Processes that start, communicate and end well prove little if the arithmetic between is wrong: a
        broken build of torch, a GPU that computes wrongly, gradients that do not arrive.

    Example:
        A GPU with faulty memory: every collective passes, and the loss is NaN from the second step on.

    Fix:
        Run the trainer as one process, then on each GPU alone, until only the faulty device or build is left:
            CUDA_VISIBLE_DEVICES=0 ddpdoctor check --nproc 1
    """

    code = "DD229"
    title = "the bundled trainer learns"

    def examine_run(self, trace: Trace) -> Judgement:
        # Averaged over the ranks by the trainer, so rank 0 speaks for all.
        first, last, steps = (trace.values(name)[0] for name in ("first_loss", "last_loss", "steps"))
        if not last <= _WEAKEST_FALL * first:  # NaN compares as false
            shown = f"became {last}" if not math.isfinite(last) else f"went from {first:.2f} to {last:.2f}"
            return self.fail(
                f"the bundled trainer's loss {shown} in {steps} steps",
                ranks=tuple(rank.rank for rank in trace.ranks),
                evidence=(
                    f"held-out loss {trace.ranks[0].summary['evaluation_loss']:.2f} after {steps} steps",
                ),
            )
        return Passed(f"the trainer's loss fell from {first:.2f} to {last:.2f} in {steps} steps")
