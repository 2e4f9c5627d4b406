from ddpdoctor.check import Check, Findings, Passed
from ddpdoctor.recorder.events.training import Forward
from ddpdoctor.text import by_state, plural
from ddpdoctor.trace import Recording, Trace, by_key, of_model, on_each_rank

_ENOUGH = 8
"""Samples on one rank from which statistics of a batch are stable enough not to speak of them."""


class BatchnormSmallBatch(Check):
    """BatchNorm computes its statistics from few samples on each rank.

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
    title = "BatchNorm sees enough samples on each rank"
    explained_by = ("DD215", "DD216", "DD221")

    def examine_run(self, trace: Trace) -> Findings:
        recordings = trace.training()
        size = trace.world_size or len(recordings)
        self.require(size >= 2, "one rank has the whole batch")
        normalised = on_each_rank(recordings, _normalised)
        self.require(normalised, "no BatchNorm was in train mode in a forward that was recorded")
        # The last batch of an epoch may be short; the largest is the one that was asked for.
        normalised.sort(key=lambda pair: -(pair[1].batch or 0))
        largest = by_key(normalised, lambda forward: forward.wrapper)
        small = [
            {rank: row[rank] for rank in sorted(row) if (row[rank].batch or 0) < _ENOUGH} for row in largest
        ]
        fewest = min(forward.batch or 0 for row in largest for forward in row.values())
        for row in small:
            if row:
                rank, first = next(iter(row.items()))
                wrapper = recordings[rank].wrapper(first.wrapper)
                yield self.warn(
                    f"{plural(first.batch_norms or 0, 'BatchNorm layer')} "
                    f"{'takes its' if first.batch_norms == 1 else 'take their'} statistics from "
                    f"{plural(first.batch or 0, 'sample')} on each rank",
                    where=wrapper.at if wrapper else first.at,
                    evidence=by_state(
                        row, lambda forward: f"batches of at most {plural(forward.batch or 0, 'sample')}"
                    ),
                    about=of_model(wrapper) if wrapper else (),
                )
        yield Passed(f"BatchNorm sees {fewest} samples on each rank")


def _normalised(recording: Recording) -> list[Forward]:
    """The forwards that computed statistics of BatchNorm."""
    return [it for it in recording.forwards if it.grad and it.batch_norms and it.batch]
