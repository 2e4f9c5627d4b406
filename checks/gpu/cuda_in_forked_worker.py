from ddpdoctor.check import Check, Judgement, Skipped
from ddpdoctor.failures import Message
from ddpdoctor.trace import Trace
from ddpdoctor.trace.raised import by_messages


class CudaInForkedWorker(Check):
    """A forked process uses CUDA after its parent initialized it.

    What it finds:
        A DataLoader worker, or a rank started by fork, that uses the GPU.

    Why it matters:
        CUDA does not work in a child that was forked after the parent had initialized it. The worker fails, and with
        it the rank.

    Example:
        A dataset whose __getitem__ returns .cuda() tensors, with num_workers > 0.

    Fix:
        Return CPU tensors from the dataset and move them in the training loop; or spawn the workers:
            DataLoader(..., multiprocessing_context="spawn")
        Start ranks with torchrun or torch.multiprocessing.spawn.
    """

    code = "DD807"
    title = "forked processes do not use CUDA"
    messages = (
        Message(
            r"Cannot re-initialize CUDA in forked subprocess",
            headline="a forked process of {rank} used CUDA after its parent had",
        ),
    )

    def examine_run(self, trace: Trace) -> Judgement:
        return by_messages(self, trace) or Skipped(
            "no rank failed because of it, and a rehearsal does not simulate it"
        )
