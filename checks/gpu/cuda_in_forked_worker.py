from ddpdoctor.check import Check
from ddpdoctor.logs.log import NOT_IN_OUTPUT, Log, log_fields
from ddpdoctor.model import Judgement, Skipped
from ddpdoctor.text import ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.raised import raised_as, raised_by, with_victims

_FORKED = r"Cannot re-initialize CUDA in forked subprocess"

_WHY = (
    "CUDA cannot be used in a child that was forked after the parent had initialised it: a DataLoader worker "
    "whose dataset makes GPU tensors, or ranks started by fork."
)
_FIX = (
    'return CPU tensors from the dataset, or DataLoader(..., multiprocessing_context="spawn")\n'
    "for ranks: torch.multiprocessing.spawn, or torchrun"
)


class CudaInForkedWorker(Check):
    """A forked process uses CUDA, which its parent had already begun to use.

    What it finds:
        A DataLoader worker, or a rank started by fork, that touches the GPU.

    Why it matters:
        CUDA's state does not survive a fork. The worker ends, and with it the rank.

    Example:
        A dataset whose __getitem__ returns .cuda() tensors, with num_workers > 0.

    Fix:
        Return CPU tensors from the dataset and move them in the training loop; or start the processes by spawn:
            DataLoader(..., multiprocessing_context="spawn")
    """

    code = "DD807"
    title = "forked processes do not use CUDA"
    raises = (_FORKED,)

    def examine_run(self, trace: Trace) -> Judgement:
        raised = raised_as(trace, *self.raises)
        if not raised:
            return Skipped("no exception tells of it, and a rehearsal's workers may use what they like")
        return self.fail(
            f"a forked process of {ranks_phrase(with_victims(trace, raised))} used CUDA after its parent had",
            why=_WHY,
            fix=_FIX,
            **raised_by(trace, raised),
        )

    def examine_log(self, log: Log) -> Judgement:
        reason = log.search(_FORKED)
        headline = "a forked process used CUDA after its parent had"
        return self.fail(headline, why=_WHY, fix=_FIX, **log_fields(reason)) if reason else NOT_IN_OUTPUT
