from ddpdoctor.check import Check
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence, Family, Judgement, Passed, Where
from ddpdoctor.text import plural
from ddpdoctor.trace import Trace
from ddpdoctor.trace.training import Forward

_ENOUGH = 8
"""Samples on one rank from which statistics of a batch are stable enough not to speak of them."""


class BatchnormSmallBatch(Check):
    """BatchNorm takes its statistics from a few samples of one rank.

    What it finds:
        BatchNorm layers in train mode, not SyncBatchNorm, in forwards whose batch on each rank is smaller than 8.

    Why it matters:
        DDP does not change BatchNorm: every rank normalises with its own samples. When a batch is divided among more
        ranks, each has fewer, mean and variance become noise, and accuracy falls with the number of GPUs.

    Example:
        A global batch of 16 on 8 GPUs:
            loader = DataLoader(dataset, batch_size=16 // dist.get_world_size(), sampler=sampler)

    Fix:
        Share the statistics, before the wrap:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            model = DistributedDataParallel(model, device_ids=[local_rank])
        Or use GroupNorm, which does not depend on the batch, or keep pretrained statistics in eval mode.
    """

    code = "DD220"
    name = "batchnorm-small-batch"
    family = Family.MODEL
    title = "BatchNorm sees enough samples on each rank"
    explained_by = ("DD215", "DD216", "DD221")

    def examine_run(self, trace: Trace) -> Judgement:
        seen = trace.training()
        size = trace.world_size or len(seen)
        if size < 2:
            raise NotMeasured("one rank has the whole batch")
        normalised = {
            rank: [
                one
                for step in own.steps
                for one in step.forwards
                if one.grad and one.batch_norms and one.batch
            ]
            for rank, own in seen.items()
        }
        normalised = {rank: own for rank, own in normalised.items() if own}
        if not normalised:
            raise NotMeasured("no BatchNorm was in train mode in a forward that was recorded")
        # The last batch of an epoch may be short; the largest is the one that was asked for.
        largest = {rank: max(own, key=lambda one: one.batch or 0) for rank, own in normalised.items()}
        small = {rank: one for rank, one in largest.items() if (one.batch or 0) < _ENOUGH}
        if not small:
            return Passed(
                f"BatchNorm sees {min(one.batch or 0 for one in largest.values())} samples on each rank"
            )
        rank, first = next(iter(small.items()))
        return self.warn(
            f"{plural(first.batch_norms or 0, 'BatchNorm layer')} {_take(first)} statistics from "
            f"{plural(first.batch or 0, 'sample')} on each rank",
            why=f"Every one of {size} ranks normalises with its own samples only. Mean and variance of "
            f"{first.batch} are noise, and what is learnt depends on the number of ranks.",
            fix="model = nn.SyncBatchNorm.convert_sync_batchnorm(model)    # before the wrap, on GPUs",
            ranks=tuple(small),
            where=_wrapped_at(trace, rank, first),
            evidence=tuple(
                Evidence(
                    f"batches of at most {plural(count, 'sample')}",
                    tuple(own for own, one in small.items() if one.batch == count),
                )
                for count in sorted({one.batch or 0 for one in small.values()})
            ),
        )


def _take(forward: Forward) -> str:
    return "takes its" if forward.batch_norms == 1 else "take their"


def _wrapped_at(trace: Trace, rank: int, forward: Forward) -> Where | None:
    wrappers = trace.recordings()[rank].wrappers
    return next((one.at for one in wrappers if one.index == forward.wrapper), forward.at)
